"""The drafting methods, one room each, and the parts that they share (``shared``).

A room is a folder here whose ``__init__`` has a ``SPEC`` (``spec.MethodSpec``): options, needs, notes, origins,
sources, the words that explain its drafts, and by name the drafter. That is how it is found; nothing else in the
program knows a method by its id. A package of somebody else adds methods through the entry point group
``spec_tui.methods``: each entry names a ``MethodSpec``. Importing this package and listing the methods loads no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

from engines.errors import UsageProblem, first_line
from engines.heads.head_config import HEADS
from engines.methods.notes import Note
from engines.methods.origins import SHARED, OriginKind
from engines.methods.spec import MethodSpec
from engines.report.events import LoadedHead, Round, Started
from engines.report.plain_text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from engines.report.run_state import RunState

__all__ = [
    "DRAFT_MODEL", "ENTRY_POINTS", "MethodSpec", "available", "baseline", "default", "drafts_itself", "drafts_nothing",
    "drafts_with", "find", "heads_of", "known", "note_of", "of_other_programs", "origin_kind", "origins", "problems",
    "remarks", "specs", "what_drafts", "who_proposes", "with_rules",
]

ENTRY_POINTS = "spec_tui.methods"
DRAFT_MODEL = "draft model"
"""What ``MethodSpec.needs`` calls it."""


def specs(host: str = "") -> tuple[MethodSpec, ...]:
    """All methods for a model that this program runs, or another one (``MethodSpec.host``), in the order they are
    shown: those of this package by ``MethodSpec.order``, then those of others by name."""
    return tuple(spec for spec in _found()[0].values() if spec.host == host)


def of_other_programs() -> tuple[MethodSpec, ...]:
    """What other programs do, as lanes of a race may have it."""
    return tuple(spec for spec in _found()[0].values() if spec.host)


def problems() -> tuple[str, ...]:
    """Why methods of other packages are not among them, a sentence each."""
    return _found()[1]


def origins() -> Mapping[str, OriginKind]:
    """The kinds of origin that drafts may have, by name: those that methods share, then those of one method."""
    return _found()[2]


def origin_kind(source: str) -> OriginKind:
    """What is known of an ``Origin.source``, which may be that of a method that is not installed here."""
    return origins().get(source) or OriginKind(
        "unknown", "?", one_line(source, 24), "target", "italic", "a method that is not installed here")


def find(engine: str) -> MethodSpec:
    """The method with this id. Raises UsageProblem that names those there are."""
    methods = _found()[0]
    if engine not in methods:
        raise UsageProblem(f"there is no engine {engine!r}", "engines are: " + ", ".join(methods))
    return methods[engine]


def known(engine: str) -> MethodSpec | None:
    """The method with this id; None for one that is not installed here (of a recorded run)."""
    return _found()[0].get(engine)


def drafts_itself(engine: str) -> bool:
    """Whether the target drafts for itself with this engine, which may be one that is not installed here."""
    return (spec := known(engine)) is not None and spec.self_speculative


def with_rules() -> str:
    """An engine whose options leave out layers by rules."""
    return next(spec.id for spec in specs() if spec.layer_rules)


def drafts_nothing(engine: str) -> bool:
    """Whether an engine, which may be one that is not installed here, is the baseline."""
    return (spec := known(engine)) is not None and spec.baseline


def baseline() -> MethodSpec:
    """The method that drafts nothing, with which the others are compared."""
    return next(spec for spec in specs() if spec.baseline)


def available(draft_model: object, heads: Mapping[str, LoadedHead]) -> tuple[str, ...]:
    """Of ``MethodSpec.needs`` what there is, given whether there is a draft model, and draft heads by kind. What a
    method that drafts with either takes comes first: a head that is ``preferred``, the draft model, other heads."""
    first = [kind for kind, head in heads.items() if head.preferred]
    return tuple(dict.fromkeys([*first, *[DRAFT_MODEL] * bool(draft_model), *heads]))


def heads_of(started: Started) -> dict[str, LoadedHead]:
    """The draft head of a run, by its kind: the one that the engine drafted with, so it comes first."""
    spec = known(started.engine)
    if spec is None or started.head is None:
        return {}
    wanted = (*spec.needs, *chain.from_iterable(spec.helped_by.values()))
    return {need: LoadedHead(started.head, started.head_price, preferred=True) for need in wanted if need in HEADS}


def drafts_with(started: Started) -> tuple[str, ...]:
    """Which of a draft model and draft heads a run drafts with; of an engine that is not known here or is another
    program's, what there was."""
    there = available(started.draft_model, heads_of(started))
    spec = known(started.engine)
    return there if spec is None or spec.host else spec.used(started.options, there)


def what_drafts(run: RunState) -> str:
    """What guesses in a run whose drafts are copied from nowhere: a draft model, a head, a part of the target."""
    made = run.prefilled
    if made is not None and made.layers is not None:
        return "part of target"
    if made is not None and made.reads is not None:
        return one_line(made.reads.head, 24)
    return next(iter(drafts_with(run.started)), DRAFT_MODEL) if run.started is not None else DRAFT_MODEL


def who_proposes(source: str, run: RunState) -> str:
    """Who proposes what is of this source in a run."""
    kind = origin_kind(source)
    return what_drafts(run) if kind.drafter else kind.label


def default(available: Collection[str], host: str = "") -> MethodSpec:
    """The method taken where none is named, given what is available of ``MethodSpec.needs``; one that takes a drafter's
    help only where it has it."""
    able = [spec for spec in specs(host) if set(spec.least(available)) <= set(available)
            and (not spec.helped_by or not set(available).isdisjoint(chain.from_iterable(spec.helped_by.values())))]
    return max(able, key=lambda spec: spec.default_priority)


def note_of(started: Started | None, event: Round) -> Note:
    """The typed note of a round."""
    spec = known(started.engine) if started is not None else None
    return (spec.note if spec is not None else Note).read(event.note)


def remarks(started: Started | None, event: Round) -> list[tuple[str, Any]]:
    """Words and values of a round's note, as a screen lists them; what is no field of the method's note as it is."""
    note = note_of(started, event)
    fields = type(note).__dataclass_fields__
    others = [(name.replace("_", " "), value) for name, value in event.note.items() if name not in fields]
    return note.labels() + [(name, value) for name, value in others if isinstance(value, str | int | float)]


def entry_points(group: str) -> Iterable[EntryPoint]:
    """What installed packages name. The library is imported late: the first screen does not need it."""
    from importlib import metadata

    return metadata.entry_points(group=group)


@cache
def _found() -> tuple[Mapping[str, MethodSpec], tuple[str, ...], Mapping[str, OriginKind]]:
    """The methods by id, why others are none of them, and the kinds of origin by name."""
    from pkgutil import iter_modules  # late, as above

    rooms = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__) if found.ispkg)
    here = sorted((room.SPEC for room in rooms if hasattr(room, "SPEC")), key=lambda spec: (spec.order, spec.id))
    methods = {spec.id: spec for spec in here}
    kinds = {kind.name: kind for kind in chain(SHARED, *(spec.origins for spec in here))}
    refused = []
    for entry in sorted(entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        where = f"the method {entry.name!r} of {entry.dist.name if entry.dist else entry.value}"
        try:
            with redirect_stdout(sys.stderr):  # stdout may be JSON
                spec = entry.load()
                fault = _fault(spec, methods, kinds)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a package of somebody else raises
            fault = f"cannot be loaded: {first_line(error)}"
        if fault:
            refused.append(f"{where} {fault}")
        else:
            methods[spec.id] = spec
            kinds |= {kind.name: kind for kind in spec.origins}
    return methods, tuple(refused), kinds


def _fault(spec: Any, methods: Mapping[str, MethodSpec], kinds: Mapping[str, OriginKind]) -> str:
    """Why what an entry names cannot be one of these methods, the end of a sentence; "" where it can. Raises Exception:
    whatever the spec's own functions raise."""
    from engines.methods.spec_check import fault

    if not isinstance(spec, MethodSpec):
        return "is no MethodSpec"
    if wrong := fault(spec, {need for method in methods.values() for need in method.needs}):
        return f"cannot be used: {wrong}"
    if spec.id in methods:
        return f"has the id {spec.id!r}, which is taken"
    taken = [kind.name for kind in spec.origins if any(map(kind.clashes, (*kinds.values(), *spec.origins)))]
    return f"has the kind of origin {taken[0]!r}, whose name or letter is taken" if taken else ""
