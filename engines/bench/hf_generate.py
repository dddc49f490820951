"""``transformers.generate`` as a lane of a race."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
