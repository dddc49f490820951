"""What a benchmark comes to, as a table, as Markdown, as JSON, as CSV."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engines.bench import published
from engines.bench.bench_results import BenchResults
from engines.bench.hf_generate import METHODS, Peer
from engines.bench.published import Figure
from engines.bench.suite import Case
from engines.race.interval import METHOD, MedianInterval
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun
from engines.report import encoding
from engines.user_folders import model_label
from spec_tui.cli.bench_notes import captions, notes
from spec_tui.cli.race_output import (
    WIDTH,
    Rows,
    as_markdown,
    as_text,
    csv_text,
    draft_rows,
    lane_object,
    milliseconds,
    number,
    pair_objects,
    run_row,
    speed_rows,
)
from spec_tui.present.race_text import MEMORY, interval
from spec_tui.present.text import one_line

SCHEMA = "spec-tui bench 1"
_TASK = 24  # columns for the name of a task
_UNKNOWN = ("drafted", "accepted", "acceptance_rate", "path_acceptance", "tau", "draft_seconds", "verify_seconds",
            "other_seconds", "break_even_length", "bias")  # of generate


@dataclass(frozen=True)
class Report:
    """A benchmark that is over: its numbers, what was asked, on what it ran, what was left out."""

    standings: BenchResults
    asked: Race
    facts: dict[str, Any]
    left_out: list[str]

    @property
    def labels(self) -> tuple[str, ...]:
        return self.asked.labels

    def named(self, lanes: list[int]) -> list[tuple[str, LaneFigures]]:
        """Labels and figures of these lanes, overall."""
        figures = self.standings.standing()
        return [(self.labels[lane], figures[lane]) for lane in lanes]


def table(report: Report) -> str:
    """For people: as wide as the terminal, at least 80 columns; 80 in a pipe."""
    if not report.standings.complete:
        return ""
    width = max(WIDTH, shutil.get_terminal_size().columns if sys.stdout.isatty() else 0)
    parts = as_text(tables(report, _plain), report.labels, notes(report), width), _elsewhere(report, as_text, (), width)
    return "\n\n".join(filter(None, parts))


def markdown(report: Report) -> str:
    """The same as Markdown, with the intervals of every task."""
    if not report.standings.complete:
        return ""
    parts = as_markdown(tables(report, _with_interval), notes(report)), _elsewhere(report, as_markdown)
    return "\n\n".join(filter(None, parts))


def tables(report: Report, cell: Callable[[MedianInterval | None, int], str]) -> list[Rows]:
    """Rows of cells, the header first: overall; drafts; by task; generate. ``cell`` writes a number of a task."""
    s = report.standings
    found = [_speed(report), draft_rows(report.named(s.own))]
    if len(s.tasks) > 1:
        found += [_rates_by_task(report, cell), _ratios_by_task(report, cell, s.started.baseline, "autoregressive")]
        if s.peers:
            found.append(_ratios_by_task(report, cell, None, "generate"))
    if s.peers:
        found.append(_peers(report))
    return [rows for rows in found if len(rows) > 1]


def _speed(report: Report) -> Rows:
    """Our lanes overall: as in a race, and over generate."""
    s = report.standings
    rows = speed_rows(report.named(s.own), report.labels[report.asked.baseline])
    if not s.peers:
        return rows
    more = [["x generate", "interval", "x whole run", "interval"]]
    for lane in s.own:
        after, whole = (s.ratio(lane, s.peer_of(lane), whole=whole) for whole in (False, True))
        more.append([number(after, 2), interval(after, 2), number(whole, 2), interval(whole, 2)])
    return [[*row, *added] for row, added in zip(rows, more)]


def _rates_by_task(report: Report, cell: Callable[[MedianInterval | None, int], str]) -> Rows:
    s = report.standings
    by_task = {task: s.standing(task) for task in s.tasks}
    rows = [["tokens/s by task", *_short(by_task)]]
    return rows + [
        [label, *(cell(figures[lane].rate, 1) for figures in by_task.values())]
        for lane, label in enumerate(report.labels)
    ]


def _ratios_by_task(
    report: Report, cell: Callable[[MedianInterval | None, int], str], base: int | None, name: str
) -> Rows:
    """Speed-ups by task over a lane; without one, over each lane's own peer."""
    s = report.standings
    rows = [[f"x {name} by task", *_short(s.tasks)]]
    for lane in s.own:
        other = s.peer_of(lane) if base is None else base
        if other is not None and other != lane:
            rows.append([report.labels[lane], *(cell(s.ratio(lane, other, task), 2) for task in s.tasks)])
    return rows


def _short(tasks: Iterable[str]) -> list[str]:
    return [one_line(task, _TASK) for task in tasks]


def _peers(report: Report) -> Rows:
    """What generate did: its own tokens/s, and what its methods gain over its greedy search."""
    s = report.standings
    rows = [["transformers", "tokens/s", "interval", "x generate", "interval", "M", "TTFT"]]
    for lane, (label, figures) in zip(s.peers, report.named(s.peers)):
        up = None if lane == s.plain_peer else s.ratio(lane, s.plain_peer)
        known = "1.00" if lane == s.plain_peer and figures.rate else number(up, 2)
        length = s.length(lane)
        rows.append([
            label, number(figures.rate, 1), interval(figures.rate), known, interval(up, 2),
            "-" if length is None else f"{length:.2f}", milliseconds(figures.ttft),
        ])
    return rows


def _elsewhere(report: Report, write: Callable[..., str], *more: Any) -> str:
    """The papers' figures in a table of their own, its caption below it."""
    rows = _published(report)
    return write([rows], *more[:1], captions(report), *more[1:]) if len(rows) > 1 else ""


def _published(report: Report) -> Rows:
    """The papers' figures of the engines that ran, and ours beside them."""
    figures = published.of(lane.engine for lane in report.asked.lanes)
    sources = published.sources(figures)
    rows = [["published elsewhere", "there", "here", "model", "data", "source"]]
    for f in figures:
        name = f"{f.engine}, {f.variant}" if f.variant else f.engine
        here = _value(f.measure, _here(report, f))
        rows.append([name, _value(f.measure, f.value), here, f.model, f.data, f"[{sources.index(f.where) + 1}]"])
    return rows


def _here(report: Report, figure: Figure) -> float | None:
    """Ours, of the first lane of the engine."""
    s = report.standings
    lane = next((n for n in s.own if report.asked.lanes[n].engine == figure.engine), None)
    if lane is None:
        return None
    if figure.measure == "speed-up":
        found = s.ratio(lane, s.started.baseline)
        return found.median if found else None
    if figure.measure == "tau":
        return s.standing()[lane].metrics.tau
    counted = [run.metrics.path_acceptance for run in s.of(lane) if run.prompt in s.settled]
    paths = [path for path in counted if path is not None]
    return statistics.mean(paths) if paths else None


def _value(measure: str, value: float | None) -> str:
    if value is None:
        return "-"
    return {"speed-up": f"x {value:.2f}", "tau": f"tau {value:.2f}", "MAR": f"MAR {value:.0%}"}[measure]


def as_object(report: Report) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    s, asked, disturbed = report.standings, report.asked, report.standings.disturbance()
    request = asked.request
    return {
        "schema": SCHEMA,
        **_portable(report.facts),
        "suite": {"name": s.suite.name, "tasks": {task: len(s.suite.numbers(task)) for task in s.suite.tasks},
                  "questions": len(s.suite.cases)},
        "asked": {name: getattr(request, name) for name in
                  ("max_new_tokens", "temperature", "top_p", "top_k", "seed", "law", "raw")},
        "repeats": asked.repeats,
        "baseline": report.labels[asked.baseline],
        "finish_reason": s.finished.reason if s.finished else "cancelled",
        "left_out": report.left_out,
        "lanes": [_lane(report, lane) for lane in s.own],
        "generate": [_lane(report, lane) for lane in s.peers],
        "intervals": METHOD,
        "memory": MEMORY,
        "pairs": pair_objects(s, asked),
        "other_cores": disturbed.other_cores,
        "waited": disturbed.waited,
        "rounds_on_fewer_threads": s.crowded / s.rounds if s.rounds else None,
        "published": {"note": published.CAPTION, "figures": [
            encoding.plain(figure) | {"here": _here(report, figure)} for figure in
            published.of(lane.engine for lane in asked.lanes)
        ]},
        "notes": notes(report),
        "runs": rows(report),
    }


def as_json(report: Report) -> str:
    """One object. Non-ASCII is escaped, so nothing in it can steer a terminal."""
    return json.dumps(as_object(report))


def as_csv(report: Report) -> str:
    """A row for each complete run, generate's too."""
    return csv_text(rows(report))


def rows(report: Report) -> list[dict[str, Any]]:
    """The complete runs, each with its task and its pace."""
    places = report.standings.suite.places
    return [_row(report, run, *places[run.prompt]) for run in report.standings.complete]


def _row(report: Report, run: LaneRun, case: Case, turn: int) -> dict[str, Any]:
    row, pace = run_row(run, report.asked), report.standings.paces[run.lane, run.repeat, run.prompt]
    if isinstance(report.asked.lanes[run.lane], Peer):
        row |= dict.fromkeys(_UNKNOWN)
    return row | {
        "audit": run.audited.verdict if run.audited else None,
        "task": one_line(case.task), "question": one_line(case.id), "turn": turn, "ttft_seconds": pace.first_seconds,
        "tokens_per_second": pace.rate, "mean_generated_length": pace.length, "first_tokens": pace.first,
        "later_tokens": pace.later, "later_seconds": pace.later_seconds, "target_forwards": pace.rounds,
    }


def _lane(report: Report, lane: int) -> dict[str, Any]:
    """A lane with its numbers overall and by task."""
    s, asked = report.standings, report.asked
    whole = lane_object(s.standing()[lane], asked)
    if lane in s.peers:
        whole |= dict.fromkeys(("acceptance_rate", "path_acceptance", "acceptance_by_depth"))
        whole |= {"call": next(m.call for m in METHODS if m.name == asked.lanes[lane].engine)}
    peer = s.peer_of(lane) if lane in s.own else s.plain_peer if lane != s.plain_peer else None
    tasks = {task: _in_task(report, lane, peer, task) for task in s.tasks}
    return whole | {"mean_generated_length": s.length(lane), **_over(report, lane, peer, None), "tasks": tasks}


def _in_task(report: Report, lane: int, peer: int | None, task: str) -> dict[str, Any]:
    s = report.standings
    figures = s.standing(task)[lane]
    known = {name: getattr(figures.metrics, name) for name in ("acceptance_rate", "path_acceptance")}
    return {
        "tokens_per_second": encoding.plain(figures.rate), "speed_up": encoding.plain(figures.speed_up),
        **_over(report, lane, peer, task), "mean_generated_length": s.length(lane, task), **known,
    }


def _over(report: Report, lane: int, peer: int | None, task: str | None) -> dict[str, Any]:
    ratios = (report.standings.ratio(lane, peer, task, whole) for whole in (False, True))
    return dict(zip(("over_generate", "over_generate_whole_run"), map(encoding.plain, ratios)))


def _portable(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts without this machine's folders."""
    models = {role: model | {"name": model_label(model["name"])} for role, model in facts["models"].items()}
    return facts | {"models": models}


def _plain(estimate: MedianInterval | None, digits: int) -> str:
    return number(estimate, digits)


def _with_interval(estimate: MedianInterval | None, digits: int) -> str:
    known = interval(estimate, digits)
    return number(estimate, digits) + ("" if known == "-" else f" ({known})")


WRITERS: dict[str, Callable[[Report], str]] = {"table": table, "json": as_json, "csv": as_csv, "md": markdown}
