"""The clock of whoever waits for tokens, the same for every lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """How fast the tokens of a run came.

    Attributes:
        first, first_seconds: tokens of the first delivery, and the seconds from the question to it: text to tokens,
            prefill, and what a drafter does at its start. Assisted generation verifies its first draft in the forward
            that reads the prompt, so its first delivery may be several tokens.
        later, later_seconds: the tokens after it, and the seconds from it to the end.
        rounds: the deliveries after the first, each after a forward of the target.
    """

    first: int
    first_seconds: float
    later: int
    later_seconds: float
    rounds: int

    @property
    def rate(self) -> float | None:
        """Tokens a second after the first delivery: prefill and what came with it are in neither. None where nothing
        came later."""
        return self.later / self.later_seconds if self.later and self.later_seconds > 0 else None

    @property
    def length(self) -> float | None:
        """Tokens a delivery after the first: the mean generated length M. None where there is none."""
        return self.later / self.rounds if self.rounds else None

    @property
    def whole(self) -> float:
        """Tokens a second of the whole run, prefill included."""
        return (self.first + self.later) / (self.first_seconds + self.later_seconds)

    @classmethod
    def total(cls, runs: Iterable[TokenTimes]) -> TokenTimes:
        """The sums over several runs."""
        runs = list(runs)
        return cls(**{field.name: sum(getattr(run, field.name) for run in runs) for field in fields(cls)})
