"""What documents say about a run besides its text: request, results, rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from engines.folders import model_label
from engines.methods import DRAFT_MODEL, drafts_with
from engines.report.events import Started
from engines.report.run_state import RunState
from engines.report.wording import seconds_of, times_of
from spec_tui.present.audit_text import sentence
from spec_tui.present.narration import asked, quoted, why_ended
from spec_tui.present.tables import count_or_dash
from spec_tui.present.text import lossy, one_line


def title(run: RunState) -> str:
    """Engine and model in a line."""
    started = run.started
    return one_line(f"{started.engine} on {model_label(started.model)}" if started else "recorded run", 100)


def origin(started: Started, *others: Started) -> Iterator[tuple[str, str]]:
    """Name and value of what it takes to repeat a run, or several: of the ``others`` only what they draft with."""
    yield "model", f"{model_label(started.model)}, {started.dtype}, {started.device}"
    runs = (started, *others)
    models = [run.draft_model for run in runs if run.draft_model and DRAFT_MODEL in drafts_with(run)]
    for name, taken in (("draft model", models), ("draft head", [run.head for run in runs if run.head])):
        if taken:
            yield name, ", ".join(dict.fromkeys(map(model_label, taken)))
    yield "engine", asked(started)
    if started.temperature and (started.top_p < 1 or started.top_k or started.min_p):
        least = f", min-p {started.min_p:g}" if started.min_p else ""
        yield "sampled from", f"top-p {started.top_p:g}, top-k {started.top_k}{least}"
    if started.repetition_penalty != 1 or started.no_repeat_ngram_size:
        yield "repetition", f"penalty {started.repetition_penalty:g}, n-gram size {started.no_repeat_ngram_size}"
    yield from started.conversation[:-1]
    if started.conversation and started.conversation[-1][0] == "raw":
        yield "prompt", "without the chat template"
    yield "maximum new tokens", str(started.max_new_tokens or "—")
    if started.datastores:
        yield "datastores", ", ".join(started.datastores)
    if started.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in started.versions.items())
    if started.machine:
        yield "machine", ", ".join(f"{name} {value}" for name, value in started.machine.items())
    if started.warnings:
        yield "notes", "; ".join(started.warnings)


def outcome(run: RunState) -> Iterator[tuple[str, str]]:
    """Name and value of the results."""
    m = run.metrics
    yield "tokens", "not disclosed" if m.uncounted else str(m.new_tokens)
    yield ("messages of the server", str(m.messages)) if m.messages else (
        "forward passes of the target", str(m.target_forwards))
    if m.mean_generated_length is not None:
        yield "tokens per verify step (M)", f"{m.mean_generated_length:.2f}"
    if m.acceptance_rate is not None:
        yield "accepted", f"{m.accepted} of {m.drafted} drafted ({m.acceptance_rate:.0%})"
    if m.tokens_per_second is not None:
        yield "speed", f"{m.tokens_per_second:.1f} {m.unit}s/s"
    parts = times_of(m)
    times = (("prefill", m.prefill_seconds), *(parts if len(parts) > 1 else (("rounds", m.verify_seconds),)))
    yield "seconds", ", ".join(f"{name} {took:.3f}" for name, took in times if took is not None)
    if run.started is not None and run.started.lossy:
        yield "distribution", lossy(m.bias)
    yield "ended", ending(run)
    if run.audited is not None:
        yield "audit", sentence(run.audited, m.bias)


def notes(problems: Sequence[str]) -> list[str]:
    """What is wrong with the trace that runs were read from (``Trace.problems``), a sentence each."""
    return [f"Note: {one_line(problem)}." for problem in problems]


def ending(run: RunState) -> str:
    """Why a run ended."""
    if run.failed is not None:
        return f"failed: {run.failed.message}"
    return why_ended(run.finished) if run.finished is not None else "the end of the run is missing"


ROUND = ("round", "drafted", "accepted", "added by the target", "ms", "text")


def rounds(run: RunState) -> Iterator[tuple[str, ...]]:
    """The values of ``ROUND`` for each round."""
    for index, event in enumerate(run.rounds):
        own = Counter(token.kind for token in event.emitted if token.node < 0)
        seconds = seconds_of(event)
        added = ", ".join(f"{number} {kind}" for kind, number in own.items()) or "none"
        added = "—" if event.known == "text" else added  # a message of any number of tokens
        drafted, accepted = (count_or_dash(count) for count in (run.drafted_in(index), event.accepted))
        yield str(event.index), drafted, accepted, added, f"{seconds * 1000:.1f}", quoted(*event.emitted)
