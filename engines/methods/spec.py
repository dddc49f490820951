"""What a method says of itself: for the command line, every screen, and the documentation. Needs no torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from engines.errors import UsageProblem
from engines.methods.counterparts import Counterpart, DraftSetup
from engines.methods.notes import Note
from engines.methods.options import Option
from engines.methods.origins import OriginKind
from engines.report.events import Layers, Round
from engines.report.run_state import RunState

if TYPE_CHECKING:
    from engines.laws.spec import LawSpec


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodSpec:
    """A drafting method.

    Attributes:
        id, title: as typed; as shown.
        summary: one sentence on how it drafts.
        source: paper or origin of the method.
        reference: where to read about its drafting: section, algorithm; "" for ``source``.
        drafter: "module:Class" of its ``engines.methods.drafter.Drafter``, imported when a run begins.
        order: its place in lists, those of smaller ones before it.
        explain: from a run, a round with a draft, and whether to go deep, paragraphs on the draft; None for what can be
            said of any method (``engines.methods.shared.explain``).
        why_empty: from a run and a round without a draft, why there is none, a clause; None as above.
        note: what it remarks on a round.
        origins: the kinds of origin of its drafts.
        options: its options, in display order.
        needs: what must be available ("draft model", "EAGLE head", "Medusa heads", "datastore",
            "dense datastore"), empty if nothing.
        drafts_with: (option, needs by its values): of these needs it has only that of the option's value, or with
            another value that of whatever is available, the first one first; None where each is needed.
        lossless: under the lossless laws the text follows the target's distribution exactly; None where another program
            decodes, and nobody here can know.
        searches: it looks into datastores where there are some, and does without where there are none.
        helped_by: by the option that allows it, what it drafts with as well: the first of these words of ``needs`` that
            is available.
        drafts_from: what its drafts are called where a method that combines several takes them ("exact matches in
            datastores"); "" if it does not.
        storeless: (option, value) with which it neither needs nor searches datastores; None where there is none.
        presets: what its option ``preset`` stands for, if it has one.
        baseline: it drafts nothing: what the others are compared with.
        self_speculative: the target drafts for itself, without some of its sublayers.
        race_place: which place it takes (from 1) among the lanes that a race begins with; None for none of them.
        variants: options of further lanes in a benchmark of all engines.
        trials: options that an adviser tries besides the defaults and ``variants``: the few that matter.
        counterparts: how other programs are told to draft so; None where none of them can.
        generate: how transformers does the same; None where it has no such method.
        layer_rules: of a self-speculative one whose options are rules that leave out layers, and can be moved: what
            those of some values leave out of layers, by the cosines that they carry.
        layers_unknown, layers_hint: of a self-speculative one: what is said where nothing is known of its layers yet,
            and how they are chosen.
        one_pass: one pass of what drafts gives the whole draft, however deep.
        host: the program that decodes with it, as ``Ready.host`` names it; "" for this one. A method of another
            program cannot be chosen for a model that runs here, except as a lane of a race.
        flag: of the command line, with which another program holds the model.
        default_priority: which method is taken when none is named: of those that can run the one with the largest.
    """

    id: str
    title: str
    summary: str
    source: str
    drafter: str
    reference: str = ""
    order: int = 1000
    explain: Callable[[RunState, Round, bool], list[str]] | None = None
    why_empty: Callable[[RunState, Round], str] | None = None
    note: type[Note] = Note
    origins: tuple[OriginKind, ...] = ()
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()
    lossless: bool | None = True
    searches: bool = False
    drafts_with: tuple[str, Mapping[str, str]] | None = None
    helped_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drafts_from: str = ""
    storeless: tuple[str, Any] | None = None
    presets: Presets | None = None
    baseline: bool = False
    self_speculative: bool = False
    layer_rules: Callable[[Layers, Mapping[str, Any]], Layers] | None = None
    layers_unknown: str = ""
    layers_hint: str = ""
    race_place: int | None = None
    variants: tuple[Mapping[str, Any], ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()
    counterparts: Callable[[Mapping[str, Any], DraftSetup], tuple[Counterpart, ...]] | None = None
    generate: GenerateCall | None = None
    one_pass: bool = False
    host: str = ""
    flag: str = ""
    default_priority: int = 0

    def __reduce__(self) -> tuple[Callable[[str], MethodSpec], tuple[str]]:
        """Pickled and copied by its id: it holds functions without names."""
        return import_module("engines.methods").find, (self.id,)

    def load_drafter(self) -> type:
        """The drafter class."""
        module, _, name = self.drafter.partition(":")
        with redirect_stdout(sys.stderr):  # stdout may be JSON
            return getattr(import_module(module), name)

    def needed(self, options: Mapping[str, Any], available: Collection[str] = ()) -> tuple[str, ...]:
        """Of ``needs`` those that these options leave, given what is available."""
        left = [need for need in self.needs if not (self._storeless(options) and "datastore" in need)]
        if self.drafts_with is not None:
            name, by_value = self.drafts_with
            there = (need for need in by_value.values() if need in available)
            taken = by_value.get(options.get(name)) or next(there, next(iter(by_value.values())))
            left = [need for need in left if need == taken or need not in by_value.values()]
        return tuple(left)

    def with_named_model(self, options: dict[str, Any], need: str) -> dict[str, Any]:
        """The options of a run for which something is named to draft with (a word of ``needs``): where they leave open
        what drafts, that does."""
        name, by_value = self.drafts_with or ("", {})
        chosen = next((value for value, other in by_value.items() if other == need), None)
        return options if chosen is None or options.get(name) in by_value else options | {name: chosen}

    def used(self, options: Mapping[str, Any], available: Collection[str]) -> tuple[str, ...]:
        """Of the available needs the one that it drafts with, given these options: of equals the first."""
        needed = tuple(need for need in self.needed(options, available) if need in available)
        allowed = [[need for need in available if need in helping][:1] for option, helping in self.helped_by.items()
                   if options.get(option)]
        return (*needed, *chain.from_iterable(allowed))

    def least(self, available: Collection[str] = ()) -> tuple[str, ...]:
        """What it needs whatever its options are."""
        return self.needed(dict([self.storeless]) if self.storeless else {}, available)

    def retrieves(self, options: Mapping[str, Any]) -> bool:
        """Whether it searches datastores, with these options."""
        return self.searches or any("datastore" in need for need in self.needed(options))

    def lossless_under(self, law: LawSpec) -> bool:
        """Whether its text is known to follow the target's distribution. A law changes nothing where nothing is
        drafted."""
        return bool(self.lossless and (law.lossless or self.baseline))

    def _storeless(self, options: Mapping[str, Any]) -> bool:
        return self.storeless is not None and options.get(self.storeless[0]) == self.storeless[1]

    def parse(self, given: Mapping[str, Any], model: str = "") -> dict[str, Any]:
        """All options with values, the given ones checked; ``preset=auto`` as what it means for a model of this name.
        Raises UsageProblem: an unknown option (the known ones are named) or a value out of range."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                names = ", ".join(f"{option.name} {option.range}" for option in self.options) or "none"
                raise UsageProblem(f"engine {self.id} has no option {name!r}", f"options of {self.id}: {names}")
        preset = {} if self.presets is None else {"preset": self._preset(given, model)}
        defaults = self.defaults(given, model) | preset
        return {name: option.parse({**given, **preset}.get(name, defaults[name])) for name, option in known.items()}

    def defaults(self, given: Mapping[str, Any], model: str = "") -> dict[str, Any]:
        """The values of options that are not given: the published ones where ``given`` has ``budget=paper``, and those
        of its ``preset``."""
        published = given.get("budget") == "paper"
        values = {o.name: o.paper if published and o.paper is not None else o.default for o in self.options}
        return values | (dict(self.presets.values.get(self._preset(given, model), {})) if self.presets else {})

    def _preset(self, given: Mapping[str, Any], model: str) -> str:
        word = str(given.get("preset", "auto"))
        return self.presets.auto(model) if word == "auto" else word
