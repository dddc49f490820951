"""How far a build has come, how fast, how long yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_WINDOW = 5.0  # seconds that the rate is averaged over


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Progress of one stage of a build.

    Attributes:
        stage: in words.
        done, total, unit: how much of it, of how much (None where unknown), of what.
        rate: units a second lately, None at first.
        left: seconds to go at this rate, None where unknown.
    """

    stage: str
    done: int
    total: int | None
    unit: str
    rate: float | None = None
    left: float | None = None


Progress = Callable[[BuildProgress], None]


def no_progress(_: BuildProgress) -> None:
    """No progress wanted."""


class Reporter:
    """Tells ``progress`` of one stage, with rate and time left; ``done`` is where this run takes it up."""

    def __init__(self, stage: str, unit: str, progress: Progress, done: int = 0) -> None:
        self._stage, self._unit, self._progress = stage, unit, progress
        self._seen: deque[tuple[float, int]] = deque([(monotonic(), done)])

    def at(self, done: int, total: int | None) -> None:
        """So much is done. What ``progress`` raises leaves this method."""
        now = monotonic()
        self._seen.append((now, done))
        while now - self._seen[0][0] > _WINDOW and len(self._seen) > 2:
            self._seen.popleft()
        begun, before = self._seen[0]
        rate = (done - before) / (now - begun) if now > begun and done > before else None
        left = (total - done) / rate if rate and total is not None else None
        self._progress(BuildProgress(self._stage, done, total, self._unit, rate, left))
