"""What the numbers of a benchmark do not say themselves, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engines.bench import published
from engines.bench.hf_generate import METHODS, method_of
from engines.hub.download_progress import in_bytes
from engines.user_folders import model_label
from spec_tui.present.race_text import MEMORY, disturbance_sentence, interval_meaning, pairs_summary, remarks

if TYPE_CHECKING:
    from spec_tui.cli.bench_output import Report


def notes(report: Report) -> list[str]:
    """How it was measured, on what, what was found about the texts, and what limits it all."""
    s, figures = report.standings, report.standings.standing()
    said = [_asked(report), *_setting(report.facts), *report.left_out, *_partial(report)]
    said += ["tokens/s: after the first delivery, by the clock of whoever waits for the tokens; overall and by task all"
             " answers of a repeat together", *_generate(report)]
    said += [*remarks(s, report.labels), *_texts(report)]
    said += [interval_meaning(f.rate for f in figures), f"memory: {MEMORY}"]
    return [sentence for sentence in (*said, disturbance_sentence(s.disturbance()), _crowded(report)) if sentence]


def captions(report: Report) -> list[str]:
    """What the published figures are, and where they are from."""
    sources = published.sources(published.of(lane.engine for lane in report.asked.lanes))
    return [f"published elsewhere: {published.CAPTION}; tau and MAR are those of the glossary",
            *(f"[{n}] {source}" for n, source in enumerate(sources, 1))]


def _asked(report: Report) -> str:
    s, request = report.standings, report.asked.request
    return (
        f"suite: {s.suite.name}, {len(s.suite.cases)} questions ({len(s.suite.places)} turns) of"
        f" {len(s.suite.tasks)} tasks, {report.asked.repeats} repeat(s), at most {request.max_new_tokens} new tokens,"
        f" temperature {request.temperature:g}"
    )


def _setting(facts: dict[str, Any]) -> list[str]:
    """Machine, versions, models."""
    machine, versions = facts["machine"], facts["versions"]
    where = [machine.get("model") or machine.get("processor"), f"{machine.get('cpus')} cores",
             f"{facts['threads']} thread(s)"]
    if machine.get("memory_bytes"):
        where.append(f"{in_bytes(machine['memory_bytes'])} of memory")
    if machine["device"] != "cpu":
        where.append(f"device {machine['device']}")
    told = [f"machine: {', '.join(filter(None, where))}"]
    if versions:
        told.append("versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    models = []
    for role, model in facts["models"].items():
        size = f", {model['parameters'] / 1e6:.1f} M parameters" if model["parameters"] else ""
        backend = f", {model['backend']}" if model["backend"] else ""
        models.append(f"{role} {model_label(model['name'])}{size}{backend}")
    return [*told, f"models: {'; '.join(models)}; {facts['dtype']}"]


def _texts(report: Report) -> list[str]:
    """Who wrote what the baseline wrote, and wherever a BUG was found; of the other pairs, which are many, a count."""
    s, base = report.standings, report.asked.baseline
    told = [pair for pair in s.pairs if base in (pair.first, pair.second) or pair.first == pair.second or pair.bugs]
    others = {(pair.first, pair.second) for pair in s.pairs if pair not in told and pair.verdict != "same"}
    more = [f"so do {len(others)} other pairs of lanes"] if others else []
    return pairs_summary(told, report.labels) + more


def _crowded(report: Report) -> str:
    """Whether ours ran on fewer threads for a while, which generate does not."""
    s = report.standings
    if not s.crowded:
        return ""
    kept = "; generate keeps its threads" if s.peers else ""
    why = "tried where forwards take much longer than at load: something else uses the cores, or the context is long"
    return f"{s.crowded / s.rounds:.0%} of our rounds ran on fewer threads, {why}{kept}"


def _partial(report: Report) -> list[str]:
    """Where something is missing."""
    s = report.standings
    count = len(s.settled)
    if count == len(s.suite.places):
        return []
    return [f"cut short: the numbers are of the {count} of {len(s.suite.places)} prompts that every lane answered"]


def _generate(report: Report) -> list[str]:
    """How generate takes part, and which engines it has no match for."""
    s = report.standings
    if not s.peers:
        return []
    lanes = [report.asked.lanes[lane] for lane in s.own]
    lacking = [report.labels[lane] for lane, kind in zip(s.own, lanes) if method_of(kind.engine) is None]
    calls = ", ".join(f"{m.call} for {m.engine}" for m in METHODS
                      if any(report.asked.lanes[peer].engine == m.name for peer in s.peers))
    told = [
        f"x generate: over transformers.generate with the same method and transformers' own defaults ({calls}), on the"
        " same weights as it loads them, with the same threads, dtype, end tokens and limit; whole run: prefill"
        " included"
    ]
    if lacking:
        told.append(f"-: transformers has no such method ({', '.join(lacking)})")
    return told
