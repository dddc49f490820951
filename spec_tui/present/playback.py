"""The one clock of everything that plays back: a recorded run, a race, the phases of a round. It reads no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

SPEEDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""The steps of ``faster``; at 1 it plays as fast as it was recorded."""


@dataclass(slots=True)
class PlaybackClock:
    """A position that moves while it plays.

    Attributes:
        end: seconds of what is played back.
        position: where it stands, in the same seconds, from 0 to ``end``.
        speed: by how many seconds the position moves in a second; above 0, infinity for all at once.
        playing: whether ``tick`` moves it.
        given: the speed that it began with: a step of ``faster``, too.
    """

    end: float
    position: float = 0.0
    speed: float = 1.0
    playing: bool = False
    given: float = field(init=False)

    def __post_init__(self) -> None:
        self.given = self.speed

    @property
    def over(self) -> bool:
        """Whether it stands at the end."""
        return self.position >= self.end

    @property
    def share(self) -> float:
        """How much of it has been played, from 0 to 1; 1 where there is nothing to play."""
        return self.position / self.end if self.end else 1.0

    def tick(self, seconds: float) -> bool:
        """Let this much time pass. It stops playing at the end. Returns whether the position could move."""
        if not self.playing:
            return False
        self.position = self.end if self.speed == float("inf") else min(self.end, self.position + seconds * self.speed)
        self.playing = not self.over
        return True

    def toggle(self) -> None:
        """Pause, or go on; at the end, play again from the start."""
        if self.over:
            self.rewind()
        else:
            self.playing = not self.playing

    def rewind(self) -> None:
        """Play from the start."""
        self.position, self.playing = 0.0, self.end > 0

    def skip(self) -> None:
        """Go to the end, and stop there."""
        self.position, self.playing = self.end, False

    def faster(self, steps: int, speeds: Sequence[float] = SPEEDS) -> None:
        """Take the speed that is so many steps up ``speeds`` (down where negative), or the last in that direction. The
        way back from the speed that was given leads to it."""
        for _ in range(abs(steps)):
            further = [s for s in (*speeds, self.given) if (s > self.speed if steps > 0 else s < self.speed)]
            self.speed = (min(further) if steps > 0 else max(further)) if further else self.speed


def speed_words(speed: float) -> str:
    """×1, ×1/8, ×16."""
    if speed == float("inf"):
        return "all at once"
    return f"×1/{1 / speed:g}" if speed < 1 and (1 / speed).is_integer() else f"×{speed:g}"
