"""``transformers.generate`` as a lane of a race; and the clock of a benchmark, the same for every lane."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from engines import methods
from engines.methods.spec import GenerateCall
from engines.race.lanes import Lane


@dataclass(frozen=True, slots=True)
class GenerateLane(Lane):
    """A call of generate as a lane, under the call's name. It has no options: everything but the method is
    transformers' own default."""

    @property
    def call(self) -> GenerateCall | None:
        """The call of this name; None where there is none, and this is an engine of ours."""
        return next((call for call in _calls().values() if call.name == self.engine), None)

    @property
    def same_as(self) -> str:
        """The engine of ours that has the same method."""
        return next(engine for engine, call in _calls().items() if call.name == self.engine)

    def check(self) -> None:
        """Nothing can be wrong with it."""


def generate_lanes(lanes: Iterable[Lane]) -> tuple[GenerateLane, ...]:
    """A lane for each call that has the method of any of these lanes, the baseline's always."""
    wanted = {methods.baseline().id, *(lane.engine for lane in lanes)}
    return tuple(GenerateLane(call.name) for engine, call in _calls().items() if engine in wanted)


def _calls() -> dict[str, GenerateCall]:
    """The calls by engine."""
    return {spec.id: spec.generate for spec in methods.specs() if spec.generate is not None}


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
