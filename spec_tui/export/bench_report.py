"""What a benchmark has to report; and what its numbers do not say themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from engines import methods
from engines.bench import published
from engines.bench.bench_results import BenchResults
from engines.bench.hf_generate import GenerateLane
from engines.bench.published import Figure
from engines.bench.suite import Case
from engines.folders import model_label
from engines.hub.download_progress import in_bytes
from engines.race.lanes import Lane, Race
from engines.race.result import LaneFigures, LaneRun
from engines.report import encoding
from engines.report.events import SAMPLING_FIELDS
from engines.report.wording import counted
from spec_tui.export.plots import Bar, BarRow, Plot, speed_bar
from spec_tui.export.race_report import NO_RUNS, lane_object, outcome_object, paper_rows, run_row, speed_rows
from spec_tui.export.report import Report
from spec_tui.present.race_text import (
    COLUMNS,
    MEMORY,
    disturbance_sentence,
    figure_rows,
    interval_meaning,
    pairs_summary,
    remarks,
    verdict_sentences,
)
from spec_tui.present.tables import Rows, interval, length, median, milliseconds, or_dash, with_interval
from spec_tui.present.text import one_line

SCHEMA = "spec-tui bench 1"
_TASK = 24  # columns for the name of a task
_UNKNOWN = ("drafted", "accepted", "acceptance_rate", "path_acceptance", "tau", "draft_seconds", "verify_seconds",
            "other_seconds", "break_even_length", "bias")  # of generate


@dataclass(frozen=True)
class Benchmark:
    """One that is over: its numbers, what was asked, on what it ran, what was left out."""

    results: BenchResults
    asked: Race
    facts: dict[str, Any]
    left_out: list[str]

    @property
    def labels(self) -> tuple[str, ...]:
        return self.asked.labels

    def named(self, lanes: list[int]) -> list[tuple[str, LaneFigures]]:
        """Labels and figures of these lanes, overall."""
        figures = self.results.by_task()
        return [(self.labels[lane], figures[lane]) for lane in lanes]


def report(done: Benchmark) -> Report:
    """What a benchmark has to report; only its data and its rows where no run is complete."""
    known = Report(data=lambda: as_object(done), rows=lambda: rows(done), columns=NO_RUNS)
    if not done.results.complete:
        return known
    theirs, captions = _published(done)
    return replace(known, title=f"Benchmark on {model_label(done.facts['models']['target']['name'])}",
                   tables=[*tables(done), *theirs], notes=[*notes(done), *captions], labels=done.labels)


def tables(done: Benchmark) -> list[Rows]:
    """Overall; drafts; as papers count; by task; generate."""
    s = done.results
    raced = done.named(s.raced)
    found = [_speed(done), figure_rows(COLUMNS[4:], raced, done.asked.baseline), paper_rows(raced)]
    if len(s.tasks) > 1:
        baseline = s.started.baseline, methods.baseline().id
        found += [_rates_by_task(done), _ratios_by_task(done, *baseline)]
        if s.generate_lanes:
            found.append(_ratios_by_task(done, None, "generate"))
    if s.generate_lanes:
        found.append(_generate_rows(done))
    return [rows for rows in found if len(rows) > 1]


def _speed(done: Benchmark) -> Rows:
    """All lanes but generate's overall: as in a race, and over generate."""
    s = done.results
    rows = speed_rows(done.named(s.raced), done.asked)
    if not s.generate_lanes:
        return rows
    more = [["x generate", "interval", "x whole run", "interval"]]
    for lane in s.raced:
        after, whole = (s.ratio(lane, s.counterpart(lane), whole=whole) for whole in (False, True))
        more.append([median(after, 2), interval(after, 2), median(whole, 2), interval(whole, 2)])
    return [[*row, *added] for row, added in zip(rows, more)]


def _rates_by_task(done: Benchmark) -> Rows:
    s = done.results
    by_task = {task: s.by_task(task) for task in s.tasks}
    rows = [["tokens/s by task", *_short(by_task)]]
    return rows + [
        [label, *(with_interval(figures[lane].rate, 1) for figures in by_task.values())]
        for lane, label in enumerate(done.labels)
    ]


def _ratios_by_task(done: Benchmark, base: int | None, name: str) -> Rows:
    """Speed-ups by task over a lane; without one, over generate with the same method."""
    s = done.results
    rows = [[f"x {name} by task", *_short(s.tasks)]]
    for lane in s.raced:
        other = s.counterpart(lane) if base is None else base
        if other is not None and other != lane:
            rows.append([done.labels[lane], *(with_interval(s.ratio(lane, other, task), 2) for task in s.tasks)])
    return rows


def _short(tasks: Iterable[str]) -> list[str]:
    return [one_line(task, _TASK) for task in tasks]


def _generate_rows(done: Benchmark) -> Rows:
    """What generate did: its own tokens/s, and what its methods gain over its greedy search."""
    s = done.results
    rows = [["transformers", "tokens/s", "interval", "x generate", "interval", "tokens/step", "1st token"]]
    for lane, (label, figures) in zip(s.generate_lanes, done.named(s.generate_lanes)):
        up = None if lane == s.plain_generate else s.ratio(lane, s.plain_generate)
        known = "1.00" if lane == s.plain_generate and figures.rate else median(up, 2)
        rows.append([
            label, median(figures.rate, 1), interval(figures.rate), known, interval(up, 2), length(s.length(lane)),
            milliseconds(figures.ttft),
        ])
    return rows


def compared(done: Benchmark) -> list[tuple[Figure, int]]:
    """The papers' figures of the lanes that decoded as published, sampled as there, as far as a benchmark measures
    them; each with the lane."""
    s, request, target = done.results, done.asked.request, done.facts["models"]["target"]["name"]
    lanes = [(lane, done.asked.lanes[lane]) for lane in s.own if lane != s.started.baseline]
    return [
        (figure, lane) for figure in published.of(kind.engine for _, kind in lanes) for lane, kind in lanes
        if figure.measure in _MEASURES and (figure.temperature, figure.top_p) == (request.temperature, request.top_p)
        and figure.is_of(kind.engine, kind.options, target)
    ]


def _published(done: Benchmark) -> tuple[list[Rows], list[str]]:
    """The papers' figures and ours beside them; what they are, and where they are from."""
    found = compared(done)
    if not found:
        return [], []
    sources = published.sources(figure for figure, _ in found)
    rows = [["published elsewhere", "there", "here", "model", "data", "source"]]
    for f, lane in found:
        name = f"{f.engine}, {f.variant}" if f.variant else f.engine
        write = _MEASURES[f.measure].format
        measured = or_dash(_here(done, f.measure, lane), write)
        rows.append([name, write(f.value), measured, f.model, f.data, f"[{sources.index(f.where) + 1}]"])
    return [rows], [f"published elsewhere: {published.CAPTION}; tau, M and MAR are those of the glossary",
                    *(f"[{n}] {source}" for n, source in enumerate(sources, 1))]


def _here(done: Benchmark, measure: str, lane: int) -> float | None:
    s = done.results
    if measure == "speed-up":
        found = s.ratio(lane, s.started.baseline)
        return found.median if found else None
    if measure == "M":
        return s.length(lane)
    figures = s.by_task()[lane]
    return figures.metrics.tau if measure == "tau" else figures.over_prompts.path_acceptance


_MEASURES = {"speed-up": "x {:.2f}", "tau": "tau {:.2f}", "M": "M {:.2f}", "MAR": "MAR {:.0%}"}
"""Of the published measures those that a benchmark compares, and how they are written."""


def as_object(done: Benchmark) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    s, asked = done.results, done.asked
    request = asked.request
    return {
        "schema": SCHEMA,
        **without_folders(done.facts),
        "suite": {"name": s.suite.name, "tasks": {task: len(s.suite.numbers(task)) for task in s.suite.tasks},
                  "questions": len(s.suite.cases)},
        "asked": {name: getattr(request, name) for name in ("max_new_tokens", *SAMPLING_FIELDS, "seed", "law", "raw")},
        "left_out": done.left_out,
        "lanes": [_lane(done, lane) for lane in s.raced],
        "generate": [_lane(done, lane) for lane in s.generate_lanes],
        **outcome_object(s, asked),
        "rounds_on_fewer_threads": s.on_fewer_threads / s.rounds if s.rounds else None,
        "published": {"note": published.CAPTION, "figures": [
            encoding.plain(figure) | {"lane": done.labels[lane], "here": _here(done, figure.measure, lane)}
            for figure, lane in compared(done)
        ]},
        "notes": notes(done),
        "runs": rows(done),
    }


def rows(done: Benchmark) -> list[dict[str, Any]]:
    """The complete runs, each with its task and its token times."""
    places = done.results.suite.places
    return [_row(done, run, *places[run.prompt]) for run in done.results.complete]


def _row(done: Benchmark, run: LaneRun, case: Case, turn: int) -> dict[str, Any]:
    row, times = run_row(run, done.asked), done.results.token_times[run.lane, run.repeat, run.prompt]
    if isinstance(done.asked.lanes[run.lane], GenerateLane):
        row |= dict.fromkeys(_UNKNOWN)
    return row | {
        "audit": run.state.audited.verdict if run.state.audited else None,
        "task": one_line(case.task), "question": one_line(case.id), "turn": turn, "ttft_seconds": times.first_seconds,
        "tokens_per_second": times.rate, "mean_generated_length": times.length, "first_tokens": times.first,
        "later_tokens": times.later, "later_seconds": times.later_seconds, "target_forwards": times.rounds,
    }


def _lane(done: Benchmark, lane: int) -> dict[str, Any]:
    """A lane with its numbers overall and by task."""
    s, asked = done.results, done.asked
    whole = lane_object(s.by_task()[lane], asked)
    if lane in s.generate_lanes:
        whole |= dict.fromkeys(("acceptance_rate", "path_acceptance", "acceptance_by_depth", "tau", "over_prompts"))
        whole |= {"call": asked.lanes[lane].call.words}
    other = s.counterpart(lane) if lane in s.raced else s.plain_generate if lane != s.plain_generate else None
    tasks = {task: _in_task(done, lane, other, task) for task in s.tasks}
    return whole | {"mean_generated_length": s.length(lane), **_over(done, lane, other, None), "tasks": tasks}


def _in_task(done: Benchmark, lane: int, other: int | None, task: str) -> dict[str, Any]:
    s = done.results
    figures = s.by_task(task)[lane]
    known = {name: getattr(figures.metrics, name) for name in ("acceptance_rate", "path_acceptance")}
    return {
        "tokens_per_second": encoding.plain(figures.rate), "speed_up": encoding.plain(figures.speed_up),
        **_over(done, lane, other, task), "mean_generated_length": s.length(lane, task), **known,
    }


def _over(done: Benchmark, lane: int, other: int | None, task: str | None) -> dict[str, Any]:
    ratios = (done.results.ratio(lane, other, task, whole) for whole in (False, True))
    return dict(zip(("over_generate", "over_generate_whole_run"), map(encoding.plain, ratios)))


def without_folders(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts without this machine's folders."""
    models = {role: model | {"name": model_label(model["name"])} for role, model in facts["models"].items()}
    return facts | {"models": models}


# -- in sentences -----------------------------------------------------------------------------------
def notes(done: Benchmark) -> list[str]:
    """How it was measured, on what, what was found about the texts, and what limits it all."""
    s, figures = done.results, done.results.by_task()
    said = [_asked(done), *setting_words(done.facts), *done.left_out, *_partial(done)]
    said += ["tokens/s: after the first delivery, on the receiver's clock; overall and by task: over all answers of a"
             " repeat together", *_generate_notes(done)]
    raced = [figures[lane] for lane in s.raced]
    verdicts = verdict_sentences(raced, done.labels, done.asked.baseline)
    said += [*remarks(s, done.labels), *verdicts, *_texts(done)]
    said += [interval_meaning(f.rate for f in figures), f"memory: {MEMORY}", _how_to_compare(done)]
    return [sentence for sentence in (*said, disturbance_sentence(s.disturbance()), _fewer_threads(done)) if sentence]


def _asked(done: Benchmark) -> str:
    s, request = done.results, done.asked.request
    questions, turns = counted(len(s.suite.cases), "question"), counted(len(s.suite.places), "turn")
    return (
        f"suite: {s.suite.name}, {questions} ({turns}) of {counted(len(s.suite.tasks), 'task')},"
        f" {counted(done.asked.repeats, 'repeat')}, at most {counted(request.max_new_tokens, 'new token')},"
        f" temperature {request.temperature:g}"
    )


def setting_words(facts: dict[str, Any]) -> list[str]:
    """Machine, versions, models."""
    machine, versions = facts["machine"], facts["versions"]
    where = [machine.get("model") or machine.get("processor"), f"{machine['cpus']} cores",
             counted(facts["threads"], "thread") if facts["threads"] else ""]
    if machine.get("memory_bytes"):
        where.append(f"{in_bytes(machine['memory_bytes'])} of memory")
    if machine["device"] != "cpu":
        where.append(f"device {machine['device']}")
    said = [f"machine: {', '.join(filter(None, where))}"]
    if versions:
        said.append("versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()))
    models = []
    for role, model in facts["models"].items():
        size = f", {model['parameters'] / 1e6:.1f} M parameters" if model["parameters"] else ""
        backend = f", {model['backend']}" if model["backend"] else ""
        models.append(f"{role} {model_label(model['name'])}{size}{backend}")
    return [*said, f"models: {'; '.join(models)}; {facts['dtype']}"]


def _texts(done: Benchmark) -> list[str]:
    """Who wrote what the baseline wrote, and wherever a BUG was found; of the other pairs, which are many, a count."""
    s, base = done.results, done.asked.baseline
    shown = [pair for pair in s.pairs if base in (pair.first, pair.second) or pair.first == pair.second or pair.bugs]
    others = {(pair.first, pair.second) for pair in s.pairs if pair not in shown and pair.verdict != "same"}
    more = [f"other pairs of lanes that differ: {len(others)}"] if others else []
    return pairs_summary(shown, done.labels) + more


def _fewer_threads(done: Benchmark) -> str:
    """Whether ours ran on fewer threads for a while, which generate does not."""
    s = done.results
    if not s.on_fewer_threads:
        return ""
    kept = "; generate keeps its threads" if s.generate_lanes else ""
    why = "tried where passes take much longer than at load: something else uses the cores, or the context is long"
    return f"{s.on_fewer_threads / s.rounds:.0%} of our rounds ran on fewer threads, {why}{kept}"


def _how_to_compare(done: Benchmark) -> str:
    """How to see published figures, where there are some of these engines and no lane decoded as published."""
    known = published.of(lane.engine for lane in done.asked.lanes if lane.engine != methods.baseline().id)
    there = [f for f in known if f.measure in _MEASURES and f.temperature == done.asked.request.temperature]
    if not there or compared(done):
        return ""
    as_published = Lane(there[0].engine, there[0].lane_options).label
    return f"published figures are shown beside lanes that decode as published, such as --engine {as_published}"


def _partial(done: Benchmark) -> list[str]:
    s = done.results
    count = len(s.counted)
    if count == len(s.suite.places):
        return []
    return [f"cut short: the numbers are of the {count} of {len(s.suite.places)} prompts that every lane answered"]


def _generate_notes(done: Benchmark) -> list[str]:
    """How generate takes part, and which engines it has no match for."""
    s = done.results
    if not s.generate_lanes:
        return []
    lanes = [done.asked.lanes[lane] for lane in s.own]
    lacking = [done.labels[lane] for lane, kind in zip(s.own, lanes) if methods.find(kind.engine).generate is None]
    calls = ", ".join(f"{lane.call.words} for {lane.same_as}"
                      for lane in (done.asked.lanes[number] for number in s.generate_lanes))
    said = [
        f"x generate: over transformers.generate with the same method and transformers' own defaults ({calls}), on the"
        " same weights as it loads them, unquantised, with the same threads, dtype, end tokens and limit; whole run:"
        " prefill included"
    ]
    if lacking:
        said.append(f"-: transformers has no such method ({', '.join(lacking)})")
    return said


# -- drawn ------------------------------------------------------------------------------------------
def plots(done: Benchmark) -> tuple[Plot | None, ...]:
    """Speed-ups over the baseline, the same by task, and ours beside generate; None for what there is nothing to draw
    of."""
    s, base = done.results, done.asked.baseline
    lanes, spread = [lane for lane in s.raced if lane != base], _spread(done)

    def speed_ups(task: str | None = None) -> list[BarRow]:
        return [BarRow(done.labels[lane], [speed_bar(s.ratio(lane, base, task))]) for lane in lanes]

    over = f"tokens/s over {one_line(done.labels[base], 30)}"
    whole = by_task = None
    if any(bar.estimate for row in speed_ups() for bar in row.bars):
        whole = Plot(panels={"": speed_ups()}, axis=f"{over}, {spread}", line=1.0)
    if len(s.tasks) > 1 and lanes:
        by_task = Plot(panels={task: speed_ups(task) for task in s.tasks}, axis=f"{over}, by task, {spread}", line=1.0)
    return whole, by_task, _beside_generate(done)


def _beside_generate(done: Benchmark) -> Plot | None:
    """Tokens/s of ours and of generate, for each lane whose method transformers has."""
    s, figures = done.results, done.results.by_task()
    rows = []
    for lane in s.own:
        if (other := s.counterpart(lane)) is not None:
            ratio = s.ratio(lane, other)
            words = "" if ratio is None else f"{ratio.median:.2f} x"
            bars = [Bar(figures[lane].rate, words), Bar(figures[other].rate, "", "theirs")]
            rows.append(BarRow(done.labels[lane], bars))
    legend = {"ours": "spec-tui", "theirs": "transformers.generate, the same method"}
    return Plot(panels={"": rows}, axis=f"tokens/s, {_spread(done)}", legend=legend) if rows else None


def _spread(done: Benchmark) -> str:
    """What the whiskers are."""
    estimates = [f.rate for f in done.results.by_task() if f.rate and f.rate.coverage]
    if not estimates:
        return "one repeat"
    return f"median and {min(e.coverage for e in estimates):.0%} interval of {done.asked.repeats} repeats"
