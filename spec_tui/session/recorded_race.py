"""Recorded runs side by side: traces as a race that is over, one lane a run. What a trace does not say (when it ran,
what else the machine did, its memory) stays unknown."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines import methods
from engines.errors import UsageProblem
from engines.race.lanes import Lane, Race
from engines.race.output_compare import judged
from engines.race.race_events import LaneEvents, LaneFinished, RaceFinished, RaceStarted
from engines.race.result import LaneRun
from engines.report.answer import Answer
from engines.report.events import SAMPLING_FIELDS, Started
from engines.report.run_state import RunState
from engines.report.traces import Trace
from engines.report.wording import counted
from engines.request import Request
from engines.wire import read_trace
from spec_tui.present.text import one_line
from spec_tui.session.history import RaceRecord
from spec_tui.session.race_state import RaceState, timeline
from spec_tui.session.replay_client import request_of
from spec_tui.session.sample_traces import trace_path

MOST = 6
SEPARATE = "recorded runs: a trace does not say when it was made, and runs of different times are not comparable"
WITHOUT_RECORD = ("how this race ended, lanes that failed, memory, and what other programs did meanwhile were not kept "
                  "with it")
ELSEWHERE = "recorded on different machines or devices, so these numbers are not comparable"
UNCOMPARED = "of different requests, or unfinished"
_PROBLEMS = 3  # of a file that there is room for
_NAMED = "name the files: spec-tui replay FILE FILE --screen race"
_TRACE = re.compile(r"(\d+)-.+\.repeat-(\d+)\.prompt-(\d+)")  # as ``trace_name`` writes it


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A trace with its name, for people; ``note``: what is to be said of how it was chosen."""

    name: str
    trace: Trace
    note: str = ""


# -- files ------------------------------------------------------------------------------------------
def trace_name(lane: Lane, run: LaneRun) -> str:
    """The file name of a run's trace, among those of its race."""
    label = re.sub(r"[^A-Za-z0-9=.-]+", "-", lane.label)[:60]
    return f"{run.lane + 1}-{label}.repeat-{run.repeat + 1}.prompt-{run.prompt + 1}.jsonl"


def read_recorded(names: Sequence[str]) -> RaceState:
    """The runs of these traces (files, names of those that ship, folders of ``compare --trace-dir``), side by side.
    Raises UsageProblem."""
    return recorded_race([source for name in names for source in _sources(name)])


def _sources(name: str) -> Iterator[RecordedRun]:
    path = trace_path(name)
    paths, note = _of_folder(path) if os.path.isdir(path) else ([path], "")
    for each in paths:
        trace = read_trace(each)
        if not trace.runs:
            raise UsageProblem(f"{each} contains no run", "traces are written by spec-tui run --trace FILE")
        yield RecordedRun(each.stem, trace, note if each == paths[0] else "")


def _of_folder(folder: Path) -> tuple[list[Path], str]:
    """Its traces: of what ``compare`` wrote the first repeat of the first prompt; and what that leaves out."""
    found = sorted(folder.glob("*.jsonl"))
    numbered = {path: match.groups()[1:] for path in found if (match := _TRACE.fullmatch(path.stem))}
    first = [path for path in found if numbered.get(path, ("1", "1")) == ("1", "1")]
    if not first:
        what = "no trace of a first repeat and prompt" if found else "no trace (*.jsonl)"
        raise UsageProblem(f"the folder {folder} holds {what}", _NAMED)
    if len(first) > MOST:
        raise UsageProblem(f"the folder {folder} holds {len(first)} lanes, and there is room for {MOST}", _NAMED)
    rest = len(found) - len(first)
    shown = "showing each lane's first repeat of the first prompt"
    return first, f"{shown}; the folder holds {counted(rest, 'more trace')}" if rest else ""


# -- the race ---------------------------------------------------------------------------------------
def recorded_race(sources: Sequence[RecordedRun]) -> RaceState:
    """The runs of one to six traces as a race that has come to its end; every run is a lane with one repeat. Raises
    UsageProblem: too many runs, none that came to its end, or an engine that is not known here."""
    runs = [(source.name, run) for source in sources for run in source.trace.runs]
    if not 1 <= len(runs) <= MOST:
        raise UsageProblem(f"these traces hold {len(runs)} runs, and side by side there is room for {MOST}",
                           f"name one to {MOST} of them: spec-tui replay FILE FILE --screen race")
    lanes = tuple(_lane(name, run[0]) for name, run in runs)
    conversation = runs[0][1][0].conversation  # for people; what was asked is each run's own, its Started has it
    race = _over(Race(lanes, Request(conversation)), {(number, 0): run for number, (_, run) in enumerate(runs)})
    result = race.result
    if not result.complete:
        raise UsageProblem("none of these runs came to its end", "spec-tui replay FILE plays what there is of one")
    starts = [result.runs[lane, 0, 0].state.started for lane in range(len(lanes))]
    base = starts[race.asked.baseline]
    result.incomparable = frozenset(lane for lane, started in enumerate(starts) if _differing(started, base))
    race.comparable = not result.incomparable and len(_whole(race)) == len(runs)
    race.uncompared = "" if len(result.pairs) == len(lanes) * (len(lanes) - 1) // 2 else UNCOMPARED
    race.origin = tuple(_origin(sources, starts)) + tuple(_apart(race, starts))
    return race


def kept_race(runs: Mapping[str, RunState], when: str, record: RaceRecord | None = None) -> RaceState:
    """A race that was kept, with all its repeats.

    Args:
        runs: by the names of ``trace_name``.
        when: when it was run, for people.
        record: what was kept beside the runs; without it lanes are those that have a run, and what traces do not say
            stays unknown.

    Raises:
        UsageProblem: there is nothing to show, or an engine is not known here.
    """
    placed: dict[tuple[int, int], tuple[str, RunState]] = {}
    for name, run in runs.items():
        found = _TRACE.fullmatch(f"{name}")
        if found and found[3] == "1" and run.started is not None and run.finished is not None:
            placed[int(found[1]), int(found[2]) - 1] = name, run
    order = range(1, len(record.asked.lanes) + 1) if record else sorted({number for number, _ in placed})
    placed = {key: placed[key] for key in sorted(placed) if key[0] in order}
    if not placed or len(order) > MOST:
        raise UsageProblem("nothing of this race can be shown", "- deletes it")
    race = _over(record.asked if record else _asked_of(placed, order), {
        (order.index(number), repeat): run.events for (number, repeat), (_, run) in placed.items()}, record)
    race.origin = (f"kept from {when}", *([] if record else [WITHOUT_RECORD]))
    return race


def _asked_of(placed: Mapping[tuple[int, int], tuple[str, RunState]], order: Sequence[int]) -> Race:
    """What a race was asked, by its runs. Raises UsageProblem: an engine is not known here."""
    named = {number: (name, run) for (number, _), (name, run) in reversed(placed.items())}
    starts = [named[number][1].started for number in order]
    stores = next((started.datastores for started in starts if started.datastores), ())
    draft = next((started.draft_model for started in starts if started.draft_model), None)
    request = replace(request_of(starts[0]), engine="", options={}, datastores=stores)
    lanes = tuple(replace(  # as in ``Lane``: what is not the others' is its own
        _lane(named[number][0], started), datastores=started.datastores if started.datastores != stores else (),
        draft_model=(started.draft_model or "") if started.draft_model != draft else "",
    ) for number, started in zip(order, starts))
    return Race(lanes, request, repeats=1 + max(repeat for _, repeat in placed))


def _over(asked: Race, runs: Mapping[tuple[int, int], Iterable[Any]], record: RaceRecord | None = None) -> RaceState:
    """A race that has come to its end; ``runs`` are the events of each lane's repeats."""
    race = RaceState(asked)
    result = race.result
    result.add(RaceStarted(asked.lanes, 1, asked.repeats, asked.baseline))
    for end in record.ends if record else ():
        result.add(end)
    for (lane, repeat), events in runs.items():
        for event in (LaneEvents(lane, repeat, 0), *events):
            result.add(event)
        run = result.runs[lane, repeat, 0]
        if run.measured is None and run.state.finished is not None:
            seconds, tokens = (timeline(run.state) or [(0.0, 0)])[-1]
            result.add(LaneFinished(
                lane=lane, repeat=repeat, prompt=0, tokens=tokens,
                tokens_per_second=run.state.metrics.tokens_per_second, seconds=seconds,
            ))
    result.pairs = list(_pairs(race))
    result.add(record.finished if record else RaceFinished("done"))
    return race


def _lane(name: str, started: Started) -> Lane:
    """The engine of a run with the options that are not its usual ones. Raises UsageProblem where it is not known."""
    spec = methods.known(started.engine)
    if spec is None:
        raise UsageProblem(f"{name} has a run of an engine that is not known here: {one_line(started.engine, 40)}",
                           "leave it out; spec-tui replay FILE plays it alone")
    usual = spec.defaults(dict(started.options))
    known = {option.name: option for option in spec.options}
    given = {n: known[n].parse(v) for n, v in started.options.items() if n in known and v != usual.get(n)}
    return Lane(started.engine, given)


def _whole(race: RaceState) -> list[LaneRun]:
    """The runs that nobody stopped and that lack nothing."""
    return [run for run in race.result.complete
            if run.state.finished.reason != "cancelled" and not run.state.lacks_rounds]


def _pairs(race: RaceState) -> Iterator[Any]:
    """How the texts of lanes that were asked the same compare, by the audits that the traces hold."""
    groups: dict[tuple[Any, ...], list[LaneRun]] = defaultdict(list)
    for run in _whole(race):
        groups[_text_of(run.state.started)].append(run)
    for runs in groups.values():
        answers = {(run.lane, run.repeat, 0): Answer.from_events(run.state.events) for run in runs}
        yield from judged(answers, {(run.lane, run.repeat, 0): run.state.audited for run in runs})


# -- what runs must share ---------------------------------------------------------------------------
def _machine(started: Started) -> tuple[Any, ...]:
    return started.device, sorted((name, str(value)) for name, value in started.machine.items())


_SHARED: tuple[tuple[str, Callable[[Started], Any]], ...] = (
    ("model", lambda s: s.model), ("dtype", lambda s: s.dtype), ("prompt", lambda s: (s.prompt, s.continued)),
    ("sampling", lambda s: tuple(getattr(s, name) for name in SAMPLING_FIELDS)), ("machine", _machine),
)
"""What two runs must share for their speeds to be compared."""


def _differing(one: Started, other: Started) -> list[str]:
    """In what two runs differ, so that their speeds say nothing about each other."""
    return [name for name, value in _SHARED if value(one) != value(other)]


def _text_of(started: Started) -> tuple[Any, ...]:
    """What two runs must share for their texts to be expected to be the same, wherever they were written."""
    asked = (value(started) for name, value in _SHARED if name != "machine")
    return (*asked, started.max_new_tokens, started.seed if started.temperature else 0)


# -- in words ---------------------------------------------------------------------------------------
def _origin(sources: Sequence[RecordedRun], starts: Sequence[Started]) -> Iterator[str]:
    """That the runs were recorded, and what is to be said of their files."""
    yield SEPARATE if all(_machine(started) == _machine(starts[0]) for started in starts) else ELSEWHERE
    yield from (source.note for source in sources if source.note)
    for source in sources:
        yield from (f"{one_line(source.name, 40)}: {problem}" for problem in source.trace.problems[:_PROBLEMS])


def _apart(race: RaceState, starts: Sequence[Started]) -> Iterator[str]:
    """Why a lane has no speed-up, or no end."""
    base = race.asked.baseline
    names = [f"{number} {label}" for number, label in enumerate(race.labels, 1)]
    for lane, started in enumerate(starts):
        run = race.result.runs[lane, 0, 0]
        end = run.state.finished
        if run.failed is None and end is None:
            yield f"{names[lane]} is cut off: the end of its run is missing"
        elif end is not None and end.reason == "cancelled":
            yield f"{names[lane]} was stopped by hand, so its text is compared with no other"
        elif end is not None and len(run.state.tokens) != len(end.tokens):
            yield f"rounds of {names[lane]} are missing, so its text is compared with no other"
        differing = _differing(started, starts[base])
        if differing:
            yield f"{names[lane]} has another {' and another '.join(differing)} than {names[base]}, so no speed-up"
