"""The photo finish: complete runs side by side on one virtual clock, by the times that were measured."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from engines.race.result import timeline
from engines.report.metrics import measure
from engines.report.run_state import RunState

SPEEDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0)
WATCHABLE = 6.0  # seconds that a replay takes at least, at the speed it begins with

Point = tuple[float, int]


class RaceReplay:
    """Runs by lane, at a moment of their common clock; each began at 0 with its prefill.

    Attributes:
        now, length: seconds; the length is that of the slowest.
        speed: how fast ``tick`` moves the clock; to begin with so that a short race can be watched.
        playing: whether it does.
    """

    def __init__(self, runs: Mapping[int, RunState]) -> None:
        self.runs = dict(runs)
        self._points: dict[int, list[Point]] = {lane: points(run) for lane, run in self.runs.items()}
        self._times = {lane: [time for time, _ in found] for lane, found in self._points.items()}
        self.length = max((times[-1] for times in self._times.values() if times), default=0.0)
        self.now = 0.0
        self.playing = bool(self.length)
        self.speed = next((s for s in reversed(SPEEDS) if self.length >= s * WATCHABLE), SPEEDS[0])

    @property
    def over(self) -> bool:
        return self.now >= self.length

    def tick(self, seconds: float) -> bool:
        """Let this much time pass before the screen; whether anything moved."""
        if not self.playing:
            return False
        self.now = min(self.length, self.now + seconds * self.speed)
        self.playing = not self.over
        return True

    def toggle(self) -> None:
        """Hold, go on; from the end, play again."""
        if self.over:
            self.rewind()
        else:
            self.playing = not self.playing

    def rewind(self) -> None:
        """From the start."""
        self.now, self.playing = 0.0, bool(self.length)

    def skip(self) -> None:
        """To the end."""
        self.now, self.playing = self.length, False

    def faster(self, steps: int) -> None:
        """Another speed, so many steps away."""
        at = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[max(0, min(at, len(SPEEDS) - 1))]

    def at(self, lane: int) -> RunState:
        """The run of a lane as it was at this moment; at its end the whole fold."""
        run, brought = self.runs[lane], bisect_right(self._times[lane], self.now)
        if brought >= len(self._times[lane]):
            return run
        if brought == 0:
            return RunState(run.started, metrics=measure([run.started] if run.started else []))
        return run.until(brought - 1)

    def arrived(self, lane: int) -> bool:
        """Whether a lane has come to its end at this moment."""
        return not self._times[lane] or self.now >= self._times[lane][-1]

    def place(self, lane: int) -> int | None:
        """As which a lane came in, from 1; None before. Who ends in the same moment shares a place."""
        if not self.arrived(lane) or not self._times[lane]:
            return None
        ends = [times[-1] for times in self._times.values() if times]
        return 1 + sum(end < self._times[lane][-1] for end in ends)

    def points(self, lane: int) -> list[Point]:
        """(seconds, tokens) of a lane up to this moment."""
        return self._points[lane][: bisect_right(self._times[lane], self.now)]

    @property
    def most(self) -> int:
        """The most tokens of any run: the top of a common axis."""
        return max((found[-1][1] for found in self._points.values() if found), default=0)


def points(run: RunState) -> list[Point]:
    """(seconds since the start, tokens so far) of a run, at every moment that brought some."""
    return timeline(event for event in (run.prefilled, *run.rounds) if event is not None)
