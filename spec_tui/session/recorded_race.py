"""Recorded runs side by side: traces as a race that is over, one lane a run. What a trace does not say (when it ran,
what else the machine did, its memory) is not made up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engines import methods
from engines.errors import UsageProblem
from engines.race.events import LaneEvents, LaneFinished, RaceFinished, RaceStarted
from engines.race.lanes import Lane, Race
from engines.race.output_compare import judged
from engines.race.result import LaneFigures, LaneRun, Result, timeline
from engines.report.answer import Answer
from engines.report.events import Started
from engines.report.traces import Trace
from engines.request import Request
from spec_tui.present.race_text import interval_meaning, pair_sentence, pairs_summary, remarks
from spec_tui.present.text import one_line
from spec_tui.session.race_state import RaceState

MOST = 6
SITTINGS = "recorded runs: a trace does not say when it was made, and numbers of different sittings are not comparable"
ELSEWHERE = "recorded on different machines or devices, so these numbers are not comparable"
_TOLD = 3  # problems of a file that there is room for


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A trace with its name, for people; ``note``: what is to be said of how it was chosen."""

    name: str
    trace: Trace
    note: str = ""


def _machine(started: Started) -> tuple[Any, ...]:
    return started.device, sorted((name, str(value)) for name, value in started.machine.items())


def _question(started: Started) -> tuple[Any, ...]:
    """What two runs must share for their speeds to be held against each other, beside the machine."""
    return (started.model, started.dtype, started.prompt, started.continued, started.temperature, started.top_p,
            started.top_k)


def _text_of(started: Started) -> tuple[Any, ...]:
    """What two runs must share for their texts to be expected to be the same."""
    return (*_question(started), started.max_new_tokens, started.seed if started.temperature else 0)


class _Result(Result):
    """No speed-up against a lane that was asked something else, or ran elsewhere."""

    def figures(self) -> list[LaneFigures]:
        found, base = super().figures(), self._of(self.started.baseline)
        return [f if _comparable(self._of(f.lane), base) else replace(f, speed_ups=()) for f in found]

    def _of(self, lane: int) -> Started:
        return self.runs[lane, 0, 0].started


def _comparable(one: Started, other: Started) -> bool:
    return _question(one) == _question(other) and _machine(one) == _machine(other)


class RecordedRace(RaceState):
    """The runs of traces as a race that has come to its end; every run is a lane with one repeat.

    Args:
        sources: traces, of one to six runs together.

    Attributes:
        alike: every lane was asked the same of the same model, on the same machine, and its run is whole.

    Raises:
        UsageProblem: too many runs, none that came to its end, or an engine that is not known here.
    """

    def __init__(self, sources: Sequence[RecordedRun]) -> None:
        runs = [(source.name, run) for source in sources for run in source.trace.runs]
        if not 1 <= len(runs) <= MOST:
            raise UsageProblem(f"these traces hold {len(runs)} runs, and side by side there is room for {MOST}",
                               f"name one to {MOST} of them: spec-tui replay FILE FILE --screen race")
        lanes = tuple(_lane(name, run[0]) for name, run in runs)
        super().__init__(Race(lanes, Request(())))  # what was asked is each run's own: its Started has it
        self.sources = tuple(sources)
        self.result = _Result()
        self.result.add(RaceStarted(lanes, 1, 1, self.asked.baseline))
        for number, (_, run) in enumerate(runs):
            self._take(number, run)
        if not self.result.complete:
            raise UsageProblem("none of these runs came to its end", "spec-tui replay FILE plays what there is of one")
        self.result.pairs = list(self._pairs())
        self.result.add(RaceFinished("done"))
        starts = self.starts
        self.alike = len(self._whole()) == len(runs) and all(_comparable(s, starts[0]) for s in starts)

    def _take(self, number: int, events: Sequence[Any]) -> None:
        self.result.add(LaneEvents(number, 0, 0))
        for event in events:
            self.result.add(event)
        run = self.result.runs[number, 0, 0]
        if run.end is not None:
            points = timeline(events)
            seconds, tokens = points[-1] if points else (0.0, 0)
            self.result.add(LaneFinished(number, 0, 0, tokens, run.metrics.tokens_per_second, seconds))

    @property
    def starts(self) -> list[Started]:
        """Of each lane."""
        return [self.result.runs[lane, 0, 0].started for lane in range(len(self.labels))]

    def _whole(self) -> list[LaneRun]:
        """Those whose text nobody cut short, and of which no round is missing."""
        return [run for run in self.result.complete if run.end.reason != "cancelled" and not _torn(run)]

    def _pairs(self) -> Iterator[Any]:
        """Of the lanes that were asked the same: how their texts compare, by the audits that the traces hold."""
        groups: dict[tuple[Any, ...], list[LaneRun]] = defaultdict(list)
        for run in self._whole():
            groups[_text_of(run.started)].append(run)
        for runs in groups.values():
            answers = {(run.lane, 0, 0): Answer.from_events(run.events) for run in runs}
            yield from judged(answers, {(run.lane, 0, 0): run.audited for run in runs})

    # -- in words -----------------------------------------------------------------------------------
    @property
    def compared(self) -> bool:
        """Every lane's text was held against every other's."""
        count = len(self.labels)
        return len(self.result.pairs) == count * (count - 1) // 2

    def notes(self) -> tuple[str, ...]:
        """What the numbers do not say themselves; first that they were recorded."""
        starts = self.starts
        same_machine = all(_machine(started) == _machine(starts[0]) for started in starts)
        said = [SITTINGS if same_machine else ELSEWHERE]
        said += [source.note for source in self.sources if source.note]
        said += [f"{one_line(source.name, 40)}: {problem}" for source in self.sources
                 for problem in source.trace.problems[:_TOLD]]
        said += self._apart()
        said += remarks(self.result, self.labels)
        said += [f"{self.labels[run.lane]}: {run.failed.message}" for run in self.result.runs.values() if run.failed]
        said.append(interval_meaning(f.rate for f in self.figures()))
        return (*filter(None, said), *self._texts())

    def _apart(self) -> Iterator[str]:
        """Why a lane has no speed-up, or no end."""
        starts, base = self.starts, self.asked.baseline
        for lane, started in enumerate(starts):
            run = self.result.runs[lane, 0, 0]
            if run.failed is None and run.end is None:
                yield f"{self._name(lane)} is cut off: the end of its run is missing"
            elif run.end is not None and run.end.reason == "cancelled":
                yield f"{self._name(lane)} was stopped by hand, so its text is compared with no other"
            elif run.end is not None and _torn(run):
                yield f"of {self._name(lane)} rounds are missing, so its text is compared with no other"
            differing = _differing(started, starts[base])
            if differing:
                yield f"{self._name(lane)} has another {' and another '.join(differing)} than {self._name(base)}, " \
                      "so no speed-up"

    def _texts(self) -> list[str]:
        if self.compared:
            return pairs_summary(self.result.pairs, self.labels)
        said = [pair_sentence(pair, self.labels) for pair in self.result.pairs]
        which = "other" if said else "their"
        return [*said, f"{which} texts are not compared: not asked the same, or not at their end"]

    def _name(self, lane: int) -> str:
        return f"{lane + 1} {self.labels[lane]}"


def _torn(run: LaneRun) -> bool:
    """Whether the end of a run speaks of more tokens than its rounds brought."""
    points = timeline(run.events)
    return (points[-1][1] if points else 0) != len(run.end.tokens)


_DIFFERENCES: tuple[tuple[str, Callable[[Started], Any]], ...] = (
    ("model", lambda s: s.model), ("dtype", lambda s: s.dtype), ("prompt", lambda s: (s.prompt, s.continued)),
    ("sampling", lambda s: (s.temperature, s.top_p, s.top_k)), ("machine", _machine),
)


def _differing(one: Started, other: Started) -> list[str]:
    """In what two runs differ, so that their speeds say nothing about each other."""
    return [name for name, value in _DIFFERENCES if value(one) != value(other)]


def _lane(name: str, started: Started) -> Lane:
    """The engine of a run with the options that are not its usual ones. Raises UsageProblem where it is not known."""
    spec = next((spec for spec in methods.specs() if spec.id == started.engine), None)
    if spec is None:
        raise UsageProblem(f"in {name} is a run of an engine that is not known here: {one_line(started.engine, 40)}",
                           "leave it out; spec-tui replay FILE plays it alone")
    usual = spec.defaults(dict(started.options))
    known = {option.name: option for option in spec.options}
    given = {n: known[n].parse(v) for n, v in started.options.items() if n in known and v != usual.get(n)}
    return Lane(started.engine, given)
