"""A race as files: its numbers as a table, as Markdown, as JSON and as CSV, and a trace of every complete run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from engines.errors import UsageProblem
from engines.race.interval import METHOD
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun, RaceResult
from engines.report import encoding
from engines.report.metrics import run_object
from engines.report.traces import TraceWriter
from spec_tui.present.race_text import MEMORY, notes
from spec_tui.present.tables import (
    Rows,
    as_csv,
    as_markdown,
    as_text,
    interval,
    length,
    memory,
    milliseconds,
    number,
    share,
)
from spec_tui.present.text import one_line, sanitise
from spec_tui.session.recorded_race import trace_name

_FORMATS = ("json", "md", "csv")
_DEPTHS = 8
NO_RUNS = ("lane", "repeat", "prompt")  # columns of a CSV file without rows

Lanes = Sequence[tuple[str, LaneFigures]]
"""Labels and figures."""


# -- numbers ----------------------------------------------------------------------------------------
def tables(result: RaceResult, asked: Race) -> list[Rows]:
    """Speed; drafts; acceptance by depth, where something was drafted."""
    lanes = list(zip(asked.labels, result.figures()))
    depths = depth_rows(lanes)
    return [speed_rows(lanes, asked.labels[asked.baseline]), draft_rows(lanes)] + ([depths] if len(depths) > 1 else [])


def speed_rows(lanes: Lanes, baseline: str) -> Rows:
    """Tokens/s, and speed-ups over the lane with the label ``baseline``."""
    rows = [["lane", "tokens/s", "interval", f"x {one_line(baseline, 14)}", "interval"]]
    for label, figures in lanes:
        rate, up = figures.rate, figures.speed_up
        known = "1.00" if label == baseline and rate else number(up, 2)
        rows.append([label, number(rate, 1), interval(rate), known, interval(up, 2)])
    return rows


def draft_rows(lanes: Lanes) -> Rows:
    """What became of drafts, and what a lane takes."""
    rows = [["lane", "accepted", "of path", "M", "TTFT", "memory"]]
    for label, figures in lanes:
        m = figures.metrics
        shares = share(m.acceptance_rate), share(m.path_acceptance)
        rows.append([label, *shares, length(m.mean_generated_length), milliseconds(figures.ttft),
                     memory(figures.memory)])
    return rows


def depth_rows(lanes: Lanes) -> Rows:
    """Acceptance by depth, of those that drafted."""
    rows = [["accepted at depth", *(str(d + 1) for d in range(_DEPTHS))]]
    for label, figures in lanes:
        if figures.metrics.drafted:
            shares = [share(accepted) for accepted in figures.by_depth][:_DEPTHS]
            rows.append([label, *shares, *[""] * (_DEPTHS - len(shares))])
    return rows


def as_object(result: RaceResult, asked: Race) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    disturbed = result.disturbance()
    return {
        "prompts": result.started.prompts if result.started else 0,
        "repeats": asked.repeats,
        "baseline": asked.labels[asked.baseline],
        "finish_reason": result.finished.reason if result.finished else "cancelled",
        "lanes": [lane_object(figures, asked) for figures in result.figures()],
        "intervals": METHOD,
        "memory": MEMORY,
        "pairs": pair_objects(result, asked),
        "other_cores": disturbed.other_cores,
        "waited": disturbed.waited,
        "notes": notes(result, asked.labels),
        "runs": [_run(run, asked) for run in result.complete],
    }


def pair_objects(result: RaceResult, asked: Race) -> list[dict[str, Any]]:
    """The texts of each pair of lanes, by label."""
    names = asked.labels
    return [
        {**encoding.plain(p), "first": names[p.first], "second": names[p.second], "bugs": [names[n] for n in p.bugs]}
        for p in result.pairs
    ]


def lane_object(figures: LaneFigures, asked: Race) -> dict[str, Any]:
    """A lane and its figures."""
    lane, m = asked.lanes[figures.lane], figures.metrics
    return {
        "lane": asked.labels[figures.lane],
        "engine": lane.engine,
        "options": lane.options,
        "datastores": list(lane.datastores),
        "tokens_per_second": encoding.plain(figures.rate),
        "speed_up": encoding.plain(figures.speed_up),
        "acceptance_rate": m.acceptance_rate,
        "path_acceptance": m.path_acceptance,
        "mean_generated_length": m.mean_generated_length,
        "acceptance_by_depth": figures.by_depth,
        "ttft_seconds": figures.ttft,
        "memory_bytes": figures.memory,
    }


def _run(run: LaneRun, asked: Race) -> dict[str, Any]:
    end, audited = run.state.finished, run.state.audited
    made = run_object(run.state.started, run.state.metrics, end.tokens, end.text, end.reason)
    if asked.audit or audited:
        made["audit"] = encoding.plain(audited) if audited else None
    return {**_place(run, asked), **_around(run), "run": made}


def run_row(run: LaneRun, asked: Race) -> dict[str, Any]:
    """A complete run as a row."""
    stats = {k: v for k, v in run.state.metrics.stats().items() if k != "match_lengths"}
    ends = {"engine": run.state.started.engine, "finish_reason": run.state.finished.reason}
    return {**_place(run, asked), **ends, **_around(run), **stats}


def _place(run: LaneRun, asked: Race) -> dict[str, Any]:
    return {"lane": sanitise(asked.labels[run.lane]), "repeat": run.repeat, "prompt": run.prompt}


def _around(run: LaneRun) -> dict[str, Any]:
    """What was measured around a run; the ``other_seconds`` in its numbers are the loop's."""
    end = run.measured
    return {
        "ttft_seconds": run.ttft, "wall_seconds": end.seconds, "memory_bytes": end.memory,
        "other_programs_seconds": end.other_seconds, "waited_seconds": end.waited_seconds,
    }


WRITERS: dict[str, Callable[[RaceResult, Race], str]] = {
    "table": lambda result, asked: as_text(tables(result, asked), asked.labels, notes(result, asked.labels))
    if result.complete else "",
    "md": lambda result, asked: as_markdown(tables(result, asked), notes(result, asked.labels))
    if result.complete else "",
    "json": lambda result, asked: json.dumps(as_object(result, asked)),  # escaped: nothing in it steers a terminal
    "csv": lambda result, asked: as_csv([run_row(run, asked) for run in result.complete], NO_RUNS),
}
"""By format. table: for people, at most 80 columns; md: the same as Markdown; both are "" where no run is complete.
json: one object; csv: a row for each complete run."""


# -- folders ----------------------------------------------------------------------------------------
class TraceFolder:
    """A folder with a trace for each complete run.

    Raises:
        UsageProblem: it cannot be made, or holds other files of these names.
    """

    def __init__(self, folder: Path, asked: Race) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"the folder {folder} cannot be made: {error.strerror}", "name another") from None
        self._folder, self._lanes = folder, asked.lanes
        for lane in range(len(asked.lanes)):  # the others are named alike
            TraceWriter(self._path(LaneRun(lane, 0, 0)))

    def write(self, result: RaceResult) -> None:
        """Write what is complete. Raises RunFailed where the disk is full."""
        for run in result.complete:
            with TraceWriter(self._path(run)) as trace:
                for event in run.state.events:
                    trace.write(event)

    def _path(self, run: LaneRun) -> Path:
        return self._folder / trace_name(self._lanes[run.lane], run)


def export(result: RaceResult, asked: Race, parent: Path | None = None) -> Path:
    """Write a folder of its own into ``parent`` (the current folder, else the documents folder). Returns its path.

    Raises:
        OSError: it cannot be written.
        SpecError: the disk is full in the middle of a trace.
    """
    folder = _folder(parent)
    for name in _FORMATS:
        (folder / f"race.{name}").write_text(WRITERS[name](result, asked) + "\n", encoding="utf-8")
    TraceFolder(folder / "traces", asked).write(result)
    return folder


def _folder(parent: Path | None) -> Path:
    """A new folder."""
    parent = parent or Path.cwd()
    if not os.access(parent, os.W_OK):
        from platformdirs import user_documents_path

        parent = user_documents_path()
    name = f"spec-tui-race-{datetime.now():%Y%m%d-%H%M%S}"
    for attempt in range(1000):
        folder = parent / (f"{name}-{attempt}" if attempt else name)
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
    raise FileExistsError(f"too many folders named {name}")
