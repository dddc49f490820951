"""The engines there are. Reading this costs no torch: a drafter's file declares its ``SPEC`` at the top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any

from engines.errors import UsageProblem
from engines.methods.options import Option

_MODULES = ("autoregressive", "pld", "rest", "dresd", "draft_model", "rasd", "hybrid", "admg", "draft_verify")


@dataclass(frozen=True, slots=True)
class Presets:
    """Values of several options at once, by the word of the option ``preset``.

    Attributes:
        values: the values, by preset and option.
        auto: which one "auto" means for a model, by the model's name ("" where none is loaded).
    """

    values: Mapping[str, Mapping[str, Any]]
    auto: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """How ``transformers.generate`` is called for the same method, for a benchmark beside it.

    Attributes:
        name: of the call as a lane.
        words: the call, for people.
        arguments: keyword arguments beside the prompt, the limit and ``do_sample=False``.
        assisted: the draft model is given as ``assistant_model``.
    """

    name: str
    words: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    assisted: bool = False


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is, for people and for ``spec-tui engines``.

    Attributes:
        id, title: as typed; as shown.
        summary: one sentence on how it drafts.
        source: paper or origin of the method.
        options: its options, in display order.
        needs: what must be at hand ("draft model", "datastore", "dense datastore"), empty if nothing.
        lossless: under the lossless laws the text follows the target's distribution exactly.
        searches: it looks into datastores where there are some, and does without where there are none.
        storeless: (option, value) with which it neither needs nor searches datastores; None where there is none.
        presets: what its option ``preset`` stands for, if it has one.
        baseline: speed-ups are measured against it; exactly one engine is.
        race_place: which place it takes (from 1) among the lanes that a race begins with; None for none of them.
        variants: options of further lanes in a benchmark of all engines.
        generate: how transformers does the same; None where it has no such method.
    """

    id: str
    title: str
    summary: str
    source: str
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()
    lossless: bool = True
    searches: bool = False
    storeless: tuple[str, Any] | None = None
    presets: Presets | None = None
    baseline: bool = False
    race_place: int | None = None
    variants: tuple[Mapping[str, Any], ...] = ()
    generate: GenerateCall | None = None

    def needed(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Of ``needs`` those that these options leave."""
        return tuple(need for need in self.needs if not (self._storeless(options) and "datastore" in need))

    def least(self) -> tuple[str, ...]:
        """What it needs whatever its options are."""
        return self.needed(dict([self.storeless])) if self.storeless else self.needs

    def retrieves(self, options: Mapping[str, Any]) -> bool:
        """Whether it searches datastores, with these options."""
        return self.searches or any("datastore" in need for need in self.needed(options))

    def _storeless(self, options: Mapping[str, Any]) -> bool:
        return self.storeless is not None and options.get(self.storeless[0]) == self.storeless[1]

    def parse(self, given: dict[str, Any], model: str = "") -> dict[str, Any]:
        """All options with values, the given ones checked; ``preset=auto`` as what it means for a model of this name.

        Raises:
            UsageProblem: an unknown option (the known ones are named) or a value out of range.
        """
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                names = ", ".join(f"{option.name} {option.range}" for option in self.options) or "none"
                raise UsageProblem(f"engine {self.id} has no option {name!r}", f"options of {self.id}: {names}")
        preset = {} if self.presets is None else {"preset": self._preset(given, model)}
        defaults = self.defaults(given, model) | preset
        return {name: option.parse((given | preset).get(name, defaults[name])) for name, option in known.items()}

    def defaults(self, given: dict[str, Any], model: str = "") -> dict[str, Any]:
        """The values of options that are not given: the published ones where ``given`` has ``budget=paper``, and those
        of its ``preset``."""
        published = given.get("budget") == "paper"
        values = {o.name: o.paper if published and o.paper is not None else o.default for o in self.options}
        return values | (dict(self.presets.values.get(self._preset(given, model), {})) if self.presets else {})

    def _preset(self, given: dict[str, Any], model: str) -> str:
        word = str(given.get("preset", "auto"))
        return self.presets.auto(model) if word == "auto" else word


def specs() -> tuple[EngineSpec, ...]:
    """All engines, in the order they are shown."""
    return tuple(module.SPEC for module in _modules().values())


def find(engine: str) -> EngineSpec:
    """The engine with this id. Raises UsageProblem that names those there are."""
    return _module(engine).SPEC


def baseline() -> EngineSpec:
    """The engine that speed-ups are measured against."""
    return next(spec for spec in specs() if spec.baseline)


def drafter_class(engine: str) -> type:
    """The drafter class of an engine. Raises UsageProblem that names those there are."""
    return _module(engine).DRAFTER


def _modules() -> dict[str, ModuleType]:
    modules = [import_module(f"engines.methods.{name}.drafter") for name in _MODULES]
    return {module.SPEC.id: module for module in modules}


def _module(engine: str) -> ModuleType:
    modules = _modules()
    if engine not in modules:
        raise UsageProblem(f"there is no engine {engine!r}", "engines are: " + ", ".join(modules))
    return modules[engine]
