"""What a race has to report; and a race as files, with a trace of every complete run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engines.errors import RunFailed
from engines.folders import make_folder, room_or, unused, writable_folder, write_whole
from engines.race.interval import METHOD
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun, RaceResult, started_here
from engines.report import encoding
from engines.report.metrics import Metrics, run_object
from engines.report.traces import TraceWriter, written
from spec_tui.export.about import origin
from spec_tui.export.report import WRITERS, Report, TextBlock
from spec_tui.present.race_text import COLUMNS, MEMORY, figure_rows, notes
from spec_tui.present.tables import Rows, length, memory, milliseconds, share
from spec_tui.present.text import one_line, sanitise
from spec_tui.session.host_access import HostAccess
from spec_tui.session.recorded_race import trace_name

_FORMATS = ("json", "md", "csv")
_DEPTHS = 8
NO_RUNS = ("lane", "repeat", "prompt")  # columns of a CSV file without rows

Lanes = Sequence[tuple[str, LaneFigures]]
"""Labels and figures."""


# -- numbers ----------------------------------------------------------------------------------------
def tables(result: RaceResult, asked: Race) -> list[Rows]:
    """Speed; drafts; numbers as papers count them and acceptance by depth, where something was drafted."""
    lanes = list(zip(asked.labels, result.figures()))
    found = [speed_rows(lanes, asked), figure_rows(COLUMNS[4:], lanes, asked.baseline), paper_rows(lanes),
             depth_rows([(label, figures.metrics) for label, figures in lanes])]
    return [rows for rows in found if len(rows) > 1]


def speed_rows(lanes: Lanes, asked: Race) -> Rows:
    """Tokens/s, and speed-ups over the baseline, which its heading names."""
    rows = figure_rows(COLUMNS[:4], lanes, asked.baseline)
    rows[0][3] = f"x {one_line(asked.labels[asked.baseline], 14)}"
    return rows


def paper_rows(lanes: Lanes) -> Rows:
    """Numbers as papers count them, of those that drafted: means over prompts, a lookup's time, what it searches."""
    rows = [["as papers count", "MAR", "accepted length", "tau", "calls", "lookup", "datastores"]]
    for label, figures in lanes:
        if figures.metrics.drafted:
            m, means = figures.metrics, figures.over_prompts
            rows.append([label, share(means.path_acceptance), length(means.accepted_length), length(m.tau),
                         length(means.calls), milliseconds(m.seconds_per_lookup, 2), memory(figures.datastore_bytes)])
    return rows


def depth_rows(lanes: Sequence[tuple[str, Metrics]]) -> Rows:
    """Acceptance by depth, of those that drafted."""
    rows = [["accepted at depth", *(str(d + 1) for d in range(_DEPTHS))]]
    for label, metrics in lanes:
        if metrics.drafted:
            shares = [share(accepted) for accepted in metrics.by_depth][:_DEPTHS]
            rows.append([label, *shares, *[""] * (_DEPTHS - len(shares))])
    return rows


def report(result: RaceResult, asked: Race) -> Report:
    """What a race has to report; only its data and its rows where no run is complete."""
    known = Report(data=lambda: as_object(result, asked), rows=lambda: [run_row(run, asked) for run in result.complete],
                   columns=NO_RUNS)
    if not result.complete:
        return known
    prompts = asked.prompts or (tuple(text for role, text in asked.request.conversation if role in ("user", "raw")),)
    more = f", the first of {len(prompts)}" if len(prompts) > 1 else ""
    setting = _setting(result, asked)
    return replace(
        known, title=f"Race on {setting[0][1]}", setting=[["setting", "value"], *map(list, setting)],
        asked=[TextBlock(f"Prompt{more}", prompts[0][-1] if prompts[0] else "")], tables=tables(result, asked),
        notes=notes(result, asked.labels), labels=asked.labels)


def _setting(result: RaceResult, asked: Race) -> list[tuple[str, str]]:
    """Name and value of what all lanes share, the model first."""
    starts, request = [run.state.started for run in result.complete], asked.request
    sampling = f"temperature {request.temperature:g}, seed {request.seed}" if request.temperature else "greedy"
    own = ("engine", "datastores", "notes")
    shared = [(name, value) for name, value in origin(started_here(starts), *starts) if name not in own]
    how = "live: slowed by the screen, not comparable" if asked.live else "fair: one after another, screen not updated"
    return [*shared, ("verification law", request.law), ("sampling", sampling),
            ("datastores", ", ".join(request.datastores) or "the default ones"), ("repeats", str(asked.repeats)),
            ("mode", how)]


def as_object(result: RaceResult, asked: Race) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    return {
        "prompts": result.started.prompts if result.started else 0,
        "setting": dict(_setting(result, asked)) if result.complete else {},
        "asked": [list(turns) for turns in asked.prompts] or [list(turn) for turn in asked.request.conversation],
        "lanes": [lane_object(figures, asked) for figures in result.figures()],
        **outcome_object(result, asked),
        "notes": notes(result, asked.labels),
        "runs": [_run(run, asked) for run in result.complete],
    }


def outcome_object(result: RaceResult, asked: Race) -> dict[str, Any]:
    """How a race or a benchmark ended, the texts of each pair of lanes by label, and what else the machine did."""
    names, disturbed = asked.labels, result.disturbance()
    return {
        "repeats": asked.repeats,
        "baseline": names[asked.baseline],
        "finish_reason": result.finished.reason if result.finished else "cancelled",
        "intervals": METHOD,
        "memory": MEMORY,
        "pairs": [
            encoding.plain(p) | {"first": names[p.first], "second": names[p.second], "bugs": [names[n] for n in p.bugs]}
            for p in result.pairs
        ],
        "other_cores": disturbed.other_cores,
        "waited": disturbed.waited,
    }


def lane_object(figures: LaneFigures, asked: Race) -> dict[str, Any]:
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
        "tau": m.tau,
        "seconds_per_lookup": m.seconds_per_lookup,
        "over_prompts": encoding.plain(figures.over_prompts),
        "acceptance_by_depth": figures.metrics.by_depth,
        "ttft_seconds": figures.ttft,
        "memory_bytes": figures.memory,
        "datastore_bytes": figures.datastore_bytes,
    }


def _run(run: LaneRun, asked: Race) -> dict[str, Any]:
    end, audited = run.state.finished, run.state.audited
    made = run_object(run.state.started, run.state.metrics, end.tokens, end.text, end.reason)
    if asked.audit or audited:
        made["audit"] = encoding.plain(audited) if audited else None
    return _around(run, asked) | {"run": made}


def run_row(run: LaneRun, asked: Race) -> dict[str, Any]:
    stats = {k: v for k, v in run.state.metrics.stats().items() if k != "match_lengths"}
    ends = {"engine": run.state.started.engine, "finish_reason": run.state.finished.reason}
    return _around(run, asked) | ends | stats


def _around(run: LaneRun, asked: Race) -> dict[str, Any]:
    """Which run it is, and what was measured around it; the ``other_seconds`` in its numbers are the loop's."""
    end = run.measured
    return {
        "lane": sanitise(asked.labels[run.lane]), "repeat": run.repeat, "prompt": run.prompt,
        "ttft_seconds": run.ttft, "wall_seconds": end.seconds, "memory_bytes": end.memory,
        "other_programs_seconds": end.other_seconds, "waited_seconds": end.waited_seconds,
    }


# -- folders ----------------------------------------------------------------------------------------
class TraceFolder:
    """A folder with a trace for each complete run. Raises UsageProblem: it cannot be made, or holds other files of
    these names."""

    def __init__(self, folder: Path, asked: Race) -> None:
        make_folder(folder)
        self._folder, self._lanes = folder, asked.lanes
        for lane in range(len(asked.lanes)):  # the others are named alike
            TraceWriter(self._path(LaneRun(lane, 0, 0)))

    def write(self, result: RaceResult) -> None:
        """Write what is complete, each trace whole or not at all. Raises RunFailed where the disk refuses, and
        UsageProblem where another file is in the way."""
        for run in result.complete:
            TraceWriter(self._path(run))  # looks what is there
            try:
                write_whole(self._path(run), written(run.state.events))
            except OSError as error:
                raise RunFailed(f"the traces in {self._folder} could not be written: {error.strerror}",
                                room_or(error, "name another folder")) from None

    def _path(self, run: LaneRun) -> Path:
        return self._folder / trace_name(self._lanes[run.lane], run)


def export(result: RaceResult, asked: Race) -> Path:
    """Write a folder of its own into the current folder, else the documents folder. Returns its path.

    Raises:
        OSError: it cannot be written.
        SpecError: the disk is full in the middle of a trace, or the session has no access to this machine.
    """
    HostAccess.here().need("saving files")
    folder, found = unused(writable_folder(), "spec-tui-race"), report(result, asked)
    folder.mkdir(parents=True)
    try:
        for name in _FORMATS:
            (folder / f"race.{name}").write_text(WRITERS[name](found) + "\n", encoding="utf-8")
        TraceFolder(folder / "traces", asked).write(result)
    except BaseException:  # half a race is no race
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
