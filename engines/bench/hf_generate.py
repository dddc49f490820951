"""``transformers.generate`` as a lane of a race: what it is called with for the method of each of our engines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engines.race.lanes import Lane


@dataclass(frozen=True, slots=True)
class Method:
    """A way to call generate: the engine of ours that has the same method, a name, and the call in words."""

    engine: str
    name: str
    call: str


METHODS = (
    Method("autoregressive", "generate", "generate(do_sample=False)"),
    Method("pld", "generate+lookup", "generate(prompt_lookup_num_tokens=10)"),
    Method("draft", "generate+assistant", "generate(assistant_model=the draft model)"),
)
_BY_ENGINE = {method.engine: method for method in METHODS}
_BY_NAME = {method.name: method for method in METHODS}


@dataclass(frozen=True, slots=True)
class Peer(Lane):
    """A method of generate as a lane, under the method's name. It has no options: everything but the method is
    transformers' own default."""

    @property
    def known(self) -> bool:
        """Whether there is such a method; else it is an engine of ours."""
        return self.engine in _BY_NAME

    @property
    def method(self) -> Method:
        return _BY_NAME[self.engine]

    def check(self) -> None:
        """Nothing can be wrong with it."""


def method_of(engine: str) -> Method | None:
    """The method of generate that is this engine's; None where transformers lacks it."""
    return _BY_ENGINE.get(engine)


def peers_of(lanes: Iterable[Lane]) -> tuple[Peer, ...]:
    """A lane for each method that any of these lanes has, the plain one always."""
    wanted = {"autoregressive", *(lane.engine for lane in lanes)}
    return tuple(Peer(method.name) for method in METHODS if method.engine in wanted)
