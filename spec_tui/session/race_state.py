"""A race as it is shown: what is asked, what has come in, which run stands for a lane, all runs on one clock.

Whether its events come from an engine or from traces (``recorded_race``) makes no difference here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Literal

from engines.race.lanes import Race
from engines.race.race_events import LaneStarted
from engines.race.result import LaneFigures, LaneRun, RaceResult
from engines.report.events import Auditing, Failed, Preparing
from engines.report.metrics import measure
from engines.report.run_state import RunState
from engines.report.wording import seconds_of
from engines.wire import Event
from spec_tui.present.playback import SPEEDS, PlaybackClock
from spec_tui.present.progress_text import preparing_share
from spec_tui.present.race_text import NOT_COMPARABLE, failure_sentences, notes, pair_sentence, ranks

WATCHABLE = 6.0  # seconds that a replay takes at least, at the speed it begins with

Progress = Literal["waiting", "running", "ran", "failed"]
Point = tuple[float, int]


class RaceState:
    """A race while it runs and afterwards.

    Args:
        asked: the race.
        origin: sentences on where its runs come from, of a recorded race.

    Attributes:
        result: the fold of its events.
        problem: why the whole race went no further, None where it did.
        auditing: share of the audits that is done, None outside of them.
        preparing: what a run that is not timed waits for; None outside of that.
        comparable: every lane was asked the same of the same model, on the same machine; else there are no ranks.
        uncompared: why some texts are compared with no other, "" where all are.
    """

    def __init__(self, asked: Race, origin: Sequence[str] = ()) -> None:
        self.asked, self.labels, self.origin = asked, asked.labels, tuple(origin)
        self.result = RaceResult()
        self.problem: Failed | None = None
        self.auditing: float | None = None
        self.preparing: Preparing | None = None
        self.comparable = True
        self.uncompared = ""
        self._figures: tuple[int, list[LaneFigures], dict[int, tuple[int, bool]]] = (-1, [], {})

    @property
    def running(self) -> bool:
        return self.result.finished is None and self.problem is None

    @property
    def timing(self) -> bool:
        """Lanes run and are measured: whatever is drawn now may cost one of them time."""
        return self.running and not self.asked.live and self.auditing is None

    def add(self, event: Event) -> None:
        waits = isinstance(event, Preparing)
        self.preparing = event if waits and preparing_share(event) != 1 else None
        if waits:
            return
        if isinstance(event, Auditing):
            self.auditing = event.done
        elif isinstance(event, Failed):
            self.problem = event
        else:
            self.result.add(event)

    @property
    def at(self) -> LaneStarted | None:
        """The run under way, None before the first and after the last."""
        return self.result.at if self.running and self.auditing is None else None

    # -- lanes --------------------------------------------------------------------------------------
    def figures(self) -> list[LaneFigures]:
        """The lanes' numbers, worked out again only where another run is complete."""
        self._fold()
        return self._figures[1]

    def rank(self, lane: int) -> tuple[int, bool] | None:
        """A lane's rank by speed, and whether it shares it; None where lanes cannot be compared."""
        self._fold()
        return self._figures[2].get(lane) if self.comparable and not self.asked.live else None

    def _fold(self) -> None:
        count = len(self.result.complete)
        if self._figures[0] != count:
            self._figures = count, self.result.figures(), ranks(self.result)

    def shown(self, lane: int) -> LaneRun | None:
        """The run that stands for a lane: of a live race the one under way; of the complete ones the one in the middle
        by tokens/s; of a lane that failed what there is."""
        at = self.at
        if self.asked.live and at is not None and at.lane == lane and not at.warm_up:
            under_way = self.result.runs.get((at.lane, at.repeat, at.prompt))
            if under_way is not None and under_way.state.started:
                return under_way
        runs = sorted(self.result.of(lane), key=lambda run: run.state.metrics.tokens_per_second or 0.0)
        if runs:
            return runs[(len(runs) - 1) // 2]
        begun = [run for run in self.result.runs.values() if run.lane == lane and run.state.started]
        return begun[-1] if begun else None

    def run(self, lane: int, repeat: int) -> LaneRun | None:
        """A run of a lane by its repeat, None where it is not complete."""
        return next((run for run in self.result.of(lane) if run.repeat == repeat), None)

    def progress(self, lane: int) -> Progress:
        runs = [run for run in self.result.runs.values() if run.lane == lane]
        if any(run.failed for run in runs):
            return "failed"
        if self.at is not None and self.at.lane == lane:
            return "running"
        return "ran" if any(run.measured for run in runs) else "waiting"

    # -- in words -----------------------------------------------------------------------------------
    def notes(self) -> list[str]:
        """What the numbers do not say themselves."""
        result, said = self.result, list(self.origin)
        if self.asked.live:
            said.append(NOT_COMPARABLE)
        for run in result.runs.values():
            if run.failed is not None:
                said.append(f"{self.labels[run.lane]}: {failure_sentences(run.failed)}")
        if result.finished is not None and result.finished.reason == "cancelled":
            most = len(self.asked.lanes) * self.asked.repeats
            said.append(f"stopped: {len(result.complete)} of {most} runs are complete, and count")
        pairs = None
        if self.uncompared:
            pairs = [pair_sentence(pair, self.labels) for pair in result.pairs]
            pairs.append(f"{'other' if pairs else 'their'} texts are not compared: {self.uncompared}")
        prefill = ["speeds leave out the prefill; the photo finish begins with it"] * (len(result.complete) > 1)
        return [*notes(result, self.labels, said, pairs), *prefill]


class RaceReplay:
    """Runs by lane at a moment of one clock, by the times that were measured; each began at 0 with its prefill.
    ``clock``: ends with the slowest run; it begins so slowly that a short race can be watched."""

    def __init__(self, runs: Mapping[int, RunState], speed: float | None = None) -> None:
        self.runs = dict(runs)
        self._points = {lane: timeline(run) for lane, run in self.runs.items()}
        self._times = {lane: [time for time, _ in points] for lane, points in self._points.items()}
        end = max((times[-1] for times in self._times.values() if times), default=0.0)
        speed = speed or next((s for s in reversed(SPEEDS) if end >= s * WATCHABLE), SPEEDS[0])
        self.clock = PlaybackClock(end, speed=speed, playing=end > 0)

    def at(self, lane: int) -> RunState:
        """The run of a lane as it was at this moment; at its end the whole run."""
        run, brought = self.runs[lane], bisect_right(self._times[lane], self.clock.position)
        if brought >= len(self._times[lane]):
            return run
        if brought == 0:
            return RunState(run.started, metrics=measure([run.started] if run.started else []))
        return run.until(brought - 1)

    def arrived(self, lane: int) -> bool:
        """Whether a lane has come to its end at this moment."""
        return not self._times[lane] or self.clock.position >= self._times[lane][-1]

    def points(self, lane: int) -> list[Point]:
        """(seconds, tokens) of a lane up to this moment; none of a lane that has no run."""
        return self._points[lane][: bisect_right(self._times[lane], self.clock.position)] if lane in self.runs else []

    @property
    def most(self) -> int:
        """The most tokens of any run: the top of a common axis."""
        return max((points[-1][1] for points in self._points.values() if points), default=0)


def timeline(run: RunState) -> list[Point]:
    """(seconds since the start of a run, new tokens so far) at every moment that brought some, by the run's own clock;
    drawing took no part in it."""
    points = [(run.prefilled.seconds, 1)] if run.prefilled is not None else []
    clock, tokens = points[0] if points else (0.0, 0)
    for event in run.rounds:
        clock += seconds_of(event)
        tokens += len(event.emitted)
        points.append((clock, tokens))
    return points
