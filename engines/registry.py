"""The engines there are. Reading this costs no torch: a drafter's file declares its ``SPEC`` at the top."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from engines.errors import UsageProblem
from engines.options import Option

_MODULES = ("autoregressive", "pld", "draft_model")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is, for people and for ``spec-tui engines``.

    Attributes:
        id, title: as typed; as shown.
        summary: one sentence on how it drafts.
        source: paper or origin of the method.
        options: its options, in display order.
        needs: what must be at hand ("draft model"), empty if nothing.
        lossless: under both laws the text follows the target's distribution exactly.
    """

    id: str
    title: str
    summary: str
    source: str
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()
    lossless: bool = True

    def parse(self, given: dict[str, Any]) -> dict[str, Any]:
        """All options with values, the given ones checked.

        Raises:
            UsageProblem: an unknown option (the known ones are named) or a value out of range.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                names = ", ".join(known) or "none"
                raise UsageProblem(f"engine {self.id} has no option {name!r}", f"its options: {names}")
        return {name: option.parse(given.get(name, option.default)) for name, option in known.items()}


def specs() -> tuple[EngineSpec, ...]:
    """All engines, in the order they are shown."""
    return tuple(import_module(f"engines.drafters.{name}").SPEC for name in _MODULES)


def find(engine: str) -> EngineSpec:
    """The engine with this id. Raises UsageProblem that names those there are."""
    for spec in specs():
        if spec.id == engine:
            return spec
    raise UsageProblem(f"there is no engine {engine!r}", "engines are: " + ", ".join(s.id for s in specs()))


def drafter_class(engine: str) -> type:
    """The drafter class of an engine (its module's ``DRAFTER``)."""
    for name in _MODULES:
        module = import_module(f"engines.drafters.{name}")
        if module.SPEC.id == engine:
            return module.DRAFTER
    raise UsageProblem(f"there is no engine {engine!r}", "engines are: " + ", ".join(s.id for s in specs()))
