"""The numbers of a race: a fold over its events, complete at any moment."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter

from engines import methods
from engines.race.interval import MedianInterval, ratio_of
from engines.race.race_events import (
    Compared,
    LaneEvents,
    LaneFinished,
    LaneStarted,
    RaceEvent,
    RaceFinished,
    RaceStarted,
)
from engines.report.events import Failed, RunEvent, Started
from engines.report.metrics import Metrics, together
from engines.report.run_state import RunState, fold

OTHERS, WAITED = 0.1, 0.02  # share of the cores that others kept busy, of the time without a core: said from here on


@dataclass(slots=True)
class LaneRun:
    """A run of a lane.

    Attributes:
        state: the fold of its events; only the totals of one that is over where the result does not keep runs.
        measured: what was measured around it, None while it runs.
    """

    lane: int
    repeat: int
    prompt: int
    state: RunState = field(default_factory=RunState)
    measured: LaneFinished | None = None

    @property
    def complete(self) -> bool:
        """It came to its own end, and its events are here."""
        return self.measured is not None and not self.failed and self.state.finished is not None

    @property
    def failed(self) -> Failed | None:
        """Why it broke, None where it did not; a recorded run says it in its events."""
        return self.measured.failed if self.measured is not None else self.state.failed

    @property
    def found_bug(self) -> bool:
        """Whether an audit found a BUG in its text."""
        return self.state.audited is not None and self.state.audited.verdict == "BUG"

    @property
    def ttft(self) -> float | None:
        """Seconds to the first token: the prefill with the drafter's own start. None before it."""
        return self.state.prefilled.seconds if self.state.prefilled is not None else None


@dataclass(frozen=True, slots=True)
class PromptMeans:
    """Numbers as papers count them: one of each prompt, its repeats averaged, and the mean over the prompts. None where
    no prompt has one. ``calls``, ``accepted_length``, ``path_acceptance``: those of ``Metrics``; the last is DReSD's
    MAR."""

    calls: float | None = None
    accepted_length: float | None = None
    path_acceptance: float | None = None


@dataclass(frozen=True, slots=True)
class LaneFigures:
    """A lane's numbers, over its complete runs.

    Attributes:
        rates, rate: tokens/s, a number for each repeat that the lane completed, all prompts together; the estimate.
        speed_ups, speed_up: over the baseline's rate of the same repeat; empty for the baseline itself.
        metrics: all runs together.
        ttft: median seconds to the first token.
        memory: bytes, the most of any run (``LaneFinished.memory``).
        datastore_bytes: what the datastores that it searches take on the disk; None where it searches none.
        over_prompts: means over prompts, where ``metrics`` has sums over all rounds.
        same_program: the baseline runs in the same program: its pass of one token is the least that a step takes.
    """

    lane: int
    rates: tuple[float, ...]
    speed_ups: tuple[float, ...]
    metrics: Metrics
    ttft: float | None
    memory: int | None
    over_prompts: PromptMeans = PromptMeans()
    datastore_bytes: int | None = None
    same_program: bool = True

    @property
    def rate(self) -> MedianInterval | None:
        return MedianInterval.of(self.rates)

    @property
    def speed_up(self) -> MedianInterval | None:
        return MedianInterval.of(self.speed_ups)


@dataclass(slots=True)
class Disturbance:
    """What else the machine did during the runs: cores that others kept busy on average, of how many, the share of time
    in which the decoding thread had no core; None where the system does not say. What rounding and the order of the
    readings put beyond what can be is cut off."""

    other_cores: float | None
    waited: float | None
    cores: int

    def __post_init__(self) -> None:
        self.other_cores, self.waited = _within(self.other_cores, self.cores), _within(self.waited, 1.0)

    @property
    def matters(self) -> bool:
        """A few busy cores of many take neither cores nor memory bandwidth worth a word."""
        return (self.other_cores or 0) >= OTHERS * self.cores or (self.waited or 0) >= WAITED


def started_here(starts: Iterable[Started]) -> Started | None:
    """The start of a run in this program, which says its machine; of another only where there is none such."""
    starts = list(starts)
    return next((start for start in starts if start.machine), next(iter(starts), None))


class RaceResult:
    """A race as it comes in.

    Args:
        keep_runs: whether runs keep their rounds and tokens (for screens and traces; numbers do without).

    Attributes:
        incomparable: lanes whose speed must not be compared with the baseline's (recorded elsewhere, or of another
            prompt); they have no speed-up.
        at: the run under way, warm-ups included.
        runs: by (lane, repeat, prompt), in the order in which they began.
        pairs: the texts of each pair of lanes, on each prompt.
    """

    def __init__(self, keep_runs: bool = True) -> None:
        self._keep = keep_runs
        self.incomparable: frozenset[int] = frozenset()
        self.started: RaceStarted | None = None
        self.at: LaneStarted | None = None
        self.runs: dict[tuple[int, int, int], LaneRun] = {}
        self.pairs: list[Compared] = []
        self.finished: RaceFinished | None = None
        self._current: LaneRun | None = None

    def add(self, event: RunEvent | RaceEvent) -> None:
        if isinstance(event, RaceEvent):
            self._add_race(event)
        elif self._current is not None:
            state = fold(self._current.state, event)
            self._current.state = state if self._keep or state.finished is None else state.totals()

    def _add_race(self, event: RaceEvent) -> None:
        self._current = None
        if isinstance(event, RaceStarted):
            self.started = event
        elif isinstance(event, LaneStarted):
            self.at = event
            if not event.warm_up:
                self._run(event)
        elif isinstance(event, LaneEvents):
            self._current = self._run(event)
        elif isinstance(event, LaneFinished):
            self._run(event).measured = event
        elif isinstance(event, Compared):
            self.pairs.append(event)
        else:
            self.finished = event

    def _run(self, event: LaneStarted | LaneEvents | LaneFinished) -> LaneRun:
        key = event.lane, event.repeat, event.prompt
        return self.runs.setdefault(key, LaneRun(*key))

    @property
    def complete(self) -> list[LaneRun]:
        """The runs that count."""
        return [run for run in self.runs.values() if run.complete]

    @property
    def bugs(self) -> bool:
        """Whether an audit found a BUG anywhere."""
        return any(run.found_bug for run in self.runs.values())

    def of(self, lane: int) -> list[LaneRun]:
        """A lane's complete runs, by repeat and prompt."""
        return sorted((r for r in self.complete if r.lane == lane), key=lambda r: (r.repeat, r.prompt))

    def figures(self, prompts: Collection[int] | None = None) -> list[LaneFigures]:
        """A lane's numbers each, in the order of the lanes; on these prompts, or all."""
        lanes = range(len(self.started.lanes)) if self.started else ()
        wanted = range(self.started.prompts) if prompts is None and self.started else prompts or ()
        rates = {lane: self.rates(lane, wanted) for lane in lanes}
        return [self._figures(lane, rates, wanted) for lane in lanes]

    def disturbance(self) -> Disturbance:
        """What else the machine did, over all finished runs."""
        ends = [run.measured for run in self.runs.values() if run.measured]
        started = started_here(run.state.started for run in self.runs.values() if run.state.started)
        known = started and started.machine.get("cpus")
        cores = known if isinstance(known, int) and known > 0 else os.cpu_count() or 1
        return Disturbance(_share(ends, "other_seconds"), _share(ends, "waited_seconds"), cores)

    def pair(self, first: int, second: int, prompt: int = 0) -> Compared | None:
        """What was found of two lanes, in either order."""
        wanted = (*sorted((first, second)), prompt)
        return next((p for p in self.pairs if (p.first, p.second, p.prompt) == wanted), None)

    def rates(self, lane: int, prompts: Collection[int]) -> dict[int, float]:
        """Tokens/s by repeat, of those in which the lane answered all of these prompts."""
        by_repeat: dict[int, list[LaneRun]] = {}
        for run in self.of(lane):
            if run.prompt in prompts:
                by_repeat.setdefault(run.repeat, []).append(run)
        found = {r: self._rate(runs) for r, runs in by_repeat.items() if len(runs) == len(prompts)}
        return {repeat: rate for repeat, rate in found.items() if rate}

    def over(self, lane: int, other: int) -> MedianInterval | None:
        """Tokens/s of one lane over another's in the same repeats, all prompts together; None where no repeat has
        both."""
        wanted = range(self.started.prompts) if self.started else ()
        mine, theirs = self.rates(lane, wanted), self.rates(other, wanted)
        return ratio_of(mine, theirs)

    def _rate(self, runs: Sequence[LaneRun]) -> float | None:
        """Tokens/s of several runs together; a benchmark overrides this and ``_ttft``: it measures them otherwise."""
        return together(run.state.metrics for run in runs).tokens_per_second

    def _ttft(self, run: LaneRun) -> float | None:
        """Seconds to the first token."""
        return run.ttft

    def _figures(self, lane: int, rates: dict[int, dict[int, float]], prompts: Collection[int]) -> LaneFigures:
        compared = lane != self.started.baseline and lane not in self.incomparable
        base = rates[self.started.baseline] if compared else {}
        runs = [run for run in self.of(lane) if run.prompt in prompts]
        ttfts = [ttft for run in runs if (ttft := self._ttft(run)) is not None]
        return LaneFigures(
            lane=lane, rates=tuple(rates[lane].values()),
            speed_ups=tuple(rate / base[r] for r, rate in rates[lane].items() if r in base),
            metrics=together(run.state.metrics for run in runs), ttft=statistics.median(ttfts) if ttfts else None,
            memory=max((run.measured.memory for run in runs if run.measured.memory is not None), default=None),
            over_prompts=PromptMeans(*(mean_over_prompts(runs, attrgetter(f.name)) for f in fields(PromptMeans))),
            datastore_bytes=max((s.datastore_bytes for run in runs if (s := run.state.started) and s.datastore_bytes),
                                default=None),
            same_program=self._program(lane) == self._program(self.started.baseline),
        )

    def _program(self, lane: int) -> str:
        """What computes a lane, as ``MethodSpec.host`` names it; "" for this program."""
        engines = (run.state.started.engine for run in self.of(lane) if run.state.started is not None)
        spec = methods.known(next(engines, ""))
        return spec.host if spec is not None else ""


def mean_over_prompts(runs: Iterable[LaneRun], number: Callable[[Metrics], float | None]) -> float | None:
    """The mean over the prompts of these runs of a number of each, its repeats averaged first; None where none has
    one."""
    found: dict[int, list[float]] = {}
    for run in runs:
        if (value := number(run.state.metrics)) is not None:
            found.setdefault(run.prompt, []).append(value)
    return statistics.mean(map(statistics.mean, found.values())) if found else None


def _within(value: float | None, most: float) -> float | None:
    return None if value is None else min(max(0.0, value), most)


def _share(ends: Sequence[LaneFinished], name: str) -> float | None:
    """A measured time over the wall time, of the runs for which it is known."""
    known = [(getattr(end, name), end.seconds) for end in ends if getattr(end, name) is not None]
    total = sum(seconds for _, seconds in known)
    return sum(value for value, _ in known) / total if total else None
