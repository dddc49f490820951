"""A race, followed: what is asked, what has come in, which run of a lane is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.race.events import LaneStarted
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun, Result
from engines.report.events import Auditing, Failed
from engines.report.run_state import RunState, fold
from engines.wire import Event

Standing = Literal["waiting", "running", "ran", "failed"]


@dataclass(slots=True)
class _Folded:
    """A run's state, and how many of its events are in it."""

    state: RunState
    events: int = 0


class RaceState:
    """A race while it runs and afterwards.

    Attributes:
        asked: the race.
        result: the fold of its events.
        problem: why the whole race went no further, None where it did.
        auditing: share of the audits that is done, None outside of them.
        stopping: it was cancelled and has not ended yet.
    """

    def __init__(self, asked: Race) -> None:
        self.asked, self.labels = asked, asked.labels
        self.result = Result()
        self.problem: Failed | None = None
        self.auditing: float | None = None
        self.stopping = False
        self._folded: dict[tuple[int, int, int], _Folded] = {}
        self._known = (-1, [])

    @property
    def running(self) -> bool:
        """It has not come to its end yet."""
        return self.result.finished is None and self.problem is None

    @property
    def timing(self) -> bool:
        """Lanes run and are measured: whatever is drawn now may cost one of them time."""
        return self.running and not self.asked.live and self.auditing is None

    def add(self, event: Event) -> None:
        """Take the next event of the engine."""
        if isinstance(event, Auditing):
            self.auditing = event.done
        elif isinstance(event, Failed) and not self._of_a_lane(event):
            self.lost(event)
        else:
            self.result.add(event)

    def lost(self, problem: Failed) -> None:
        """The race ends here: the engine failed, or is gone."""
        self.problem = problem

    def _of_a_lane(self, failed: Failed) -> bool:
        """Whether this failure is one of the lane that runs: those begin with its label, and the race goes on."""
        at = self.result.at
        if at is None or at.warm_up:
            return False
        return any(failed.message.startswith(f"{label}: ") for label in self.labels)

    @property
    def at(self) -> LaneStarted | None:
        """The run under way, None before the first and after the last."""
        return self.result.at if self.running and self.auditing is None else None

    # -- lanes --------------------------------------------------------------------------------------
    def figures(self) -> list[LaneFigures]:
        """The lanes' numbers, worked out again only where another run is complete."""
        count = len(self.result.complete)
        if self._known[0] != count:
            self._known = count, self.result.figures()
        return self._known[1]

    def shown(self, lane: int) -> LaneRun | None:
        """The run that stands for a lane: of a live race the one under way; of the complete ones the one in the middle
        by tokens/s; of a lane that failed what there is."""
        at = self.at
        if self.asked.live and at is not None and at.lane == lane and not at.warm_up:
            under_way = self.result.runs.get((at.lane, at.repeat, at.prompt))
            if under_way is not None and under_way.started:
                return under_way
        runs = sorted(self.result.of(lane), key=lambda run: run.metrics.tokens_per_second or 0.0)
        if runs:
            return runs[(len(runs) - 1) // 2]
        begun = [run for run in self.result.runs.values() if run.lane == lane and run.started]
        return begun[-1] if begun else None

    def run(self, lane: int, repeat: int) -> LaneRun | None:
        """A run of a lane by its repeat, None where it is not complete."""
        return next((run for run in self.result.of(lane) if run.repeat == repeat), None)

    def state(self, run: LaneRun) -> RunState:
        """The fold of a run's events."""
        key = run.lane, run.repeat, run.prompt
        folded = self._folded.setdefault(key, _Folded(RunState()))
        for event in run.events[folded.events :]:
            folded.state = fold(folded.state, event)
        folded.events = len(run.events)
        return folded.state

    def standing(self, lane: int) -> Standing:
        """How far a lane is."""
        runs = [run for run in self.result.runs.values() if run.lane == lane]
        if any(run.failed or (run.finished and run.finished.failed) for run in runs):
            return "failed"
        if self.at is not None and self.at.lane == lane:
            return "running"
        return "ran" if any(run.finished for run in runs) else "waiting"
