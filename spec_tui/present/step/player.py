"""Going through a run: place, speed, bookmarks, guesses. The screen only draws it and hands it keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engines.core.tree import depths
from engines.report.run_state import RunState
from spec_tui.present.playback import PlaybackClock
from spec_tui.present.step.phases import Phase, StepPosition, event_of, following, in_round, phases_of, preceding

SPEEDS = (1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)
PACE = 1.6  # seconds that a phase stays at speed 1
MOST = 9  # the largest guess, a digit
BEFORE: tuple[Phase, ...] = ("context", "draft", "tree")  # the phases before a draft is verified


@dataclass(frozen=True, slots=True)
class Guess:
    """What was guessed for a round before its draft was verified, and what came; ``MOST`` stands for more, too."""

    round: int
    said: int
    came: int

    @property
    def right(self) -> bool:
        """Whether it came true."""
        return self.said == min(MOST, self.came)


class StepPlayer:
    """A place in a run, and how it moves.

    Attributes:
        clock: of the present phase; where it is over, the next one comes.
        deep: explanations for those who ask on.
        guessing: a guess is asked for before a draft is verified.
        bookmarks: numbers of rounds.
        guesses: in the order made; a round counts once.
        skipped: the round whose guess was asked for and passed over.
    """

    def __init__(self, run: RunState, place: StepPosition | None = None) -> None:
        self.run, self.place = run, place or StepPosition()
        self.clock = PlaybackClock(PACE)
        self.deep = self.guessing = False
        self.bookmarks: list[int] = []
        self.guesses: list[Guess] = []
        self.skipped = -1

    @property
    def rounds(self) -> int:
        return len(self.run.rounds)

    @property
    def asks(self) -> bool:
        """Whether a guess for this round is still possible: its draft is there, and what becomes of it is not shown."""
        event = event_of(self.run, self.place.round)
        if not self.guessing or event is None or not event.drafted:
            return False
        return self.place.phase in BEFORE and not self.guessed(self.place.round)

    @property
    def hides(self) -> bool:
        """Whether what became of this round's draft must not be seen yet."""
        return self.guessing and self.place.phase in BEFORE

    def guessed(self, number: int) -> Guess | None:
        return next((guess for guess in self.guesses if guess.round == number), None)

    def update(self, run: RunState) -> None:
        """The same run with more of it, or the same text made again: the place and the bookmarks stay at their tokens,
        and guesses about drafts that are no more are forgotten."""
        before, self.run = self.run, run
        if before.starts[:] != run.starts[: len(before.starts)]:
            now = {0: 0} | {number: max((n for n, start in enumerate(run.starts, 1) if start <= at), default=0)
                            for number, at in enumerate(before.starts, 1)}
            self.place = in_round(run, self.place, now[self.place.round])
            self.bookmarks = sorted({now[number] for number in self.bookmarks})
            self.guesses = [replace(guess, round=now[guess.round]) for guess in self.guesses
                            if now[guess.round] and _drafted(before, guess.round) == _drafted(run, now[guess.round])]
        if self.place.round > self.rounds or self.place.phase not in phases_of(run, self.place.round):
            self.place = in_round(run, self.place, self.place.round)

    # -- moves ------------------------------------------------------------------------------------
    def forward(self) -> bool:
        """The next phase. False where there is none, or where a guess is asked for first: once a round."""
        nxt = following(self.run, self.place)
        if nxt is None:
            self.clock.playing = False
            return False
        if self.asks and nxt.phase == "verify" and self.skipped != self.place.round:
            self.skipped = self.place.round
            return False
        self._go(nxt)
        return True

    def back(self) -> bool:
        before = preceding(self.run, self.place)
        if before is not None:
            self._go(before)
        return before is not None

    def to_phase(self, phase: Phase) -> None:
        """A phase of this round; not beyond one before which a guess is asked for."""
        phases = phases_of(self.run, self.place.round)
        steps = phases.index(phase) - phases.index(self.place.phase)
        for _ in range(abs(steps)):
            if not (self.forward() if steps > 0 else self.back()):
                break

    def jump(self, number: int) -> None:
        """A round, the same phase of it; where a guess is wanted its beginning."""
        number = max(0, min(number, self.rounds))
        place = in_round(self.run, self.place, number)
        self._go(StepPosition(number) if self.guessing and not self.guessed(number) else place)

    def home(self) -> None:
        self._go(StepPosition())

    def end(self) -> None:
        self._go(StepPosition(self.rounds, "keep"))

    @property
    def score(self) -> str:
        """How many guesses came true."""
        right = sum(guess.right for guess in self.guesses)
        return f"{right} of {len(self.guesses)} right"

    def guess(self, said: int) -> bool:
        """Say how many will be accepted, and see. False where it is too late, or more than can be."""
        if not self.asks or said > self.most():
            return False
        came = len(event_of(self.run, self.place.round).path)
        self.guesses.append(Guess(self.place.round, said, came))
        self._go(StepPosition(self.place.round, "verify"))
        return True

    def most(self) -> int:
        """The largest guess that makes sense in this round."""
        event = event_of(self.run, self.place.round)
        return min(MOST, max(depths(event.draft.parents), default=0)) if event is not None else 0

    # -- bookmarks --------------------------------------------------------------------------------
    def mark(self) -> bool:
        """Set or take away the bookmark of this round; whether it is there now."""
        self.bookmarks = sorted({*self.bookmarks} ^ {self.place.round})
        return self.place.round in self.bookmarks

    def next_mark(self, step: int) -> bool:
        """To the next bookmark, or the one before, around the ends. False without any."""
        if not self.bookmarks:
            return False
        later = [n for n in self.bookmarks if n > self.place.round]
        earlier = [n for n in self.bookmarks if n < self.place.round]
        self.jump((later or self.bookmarks)[0] if step > 0 else (earlier or self.bookmarks)[-1])
        return True

    # -- time -------------------------------------------------------------------------------------
    def tick(self, seconds: float) -> bool:
        """Time passes; whether the place changed. Where a guess is asked for, playing waits for it."""
        if not self.clock.tick(seconds) or not self.clock.over:
            return False
        self.clock.rewind()
        nxt = following(self.run, self.place)
        if self.asks and nxt is not None and nxt.phase == "verify":
            return False
        return self.forward()

    def _go(self, place: StepPosition) -> None:
        self.place, self.clock.position = place, 0.0


def _drafted(run: RunState, number: int) -> tuple[int, tuple[int, ...]]:
    """What a round drafted, and after how many tokens of the answer."""
    return run.starts[number - 1], run.rounds[number - 1].draft.tokens
