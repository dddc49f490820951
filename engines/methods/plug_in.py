"""What a plug-in's drafter proposes, checked at once: numbers of NumPy or torch become Python's, and what would break
the run later, or change its text, is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from operator import index
from typing import Any

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.budget import BudgetChoice
from engines.methods.notes import Note
from engines.report.events import Origin, Retrieval

_SHOWN = {"note": Note, "budget": BudgetChoice, "retrieval": Retrieval}  # of a draft
_NUMBERS = ("place", "match", "line", "passage")  # of an origin


def is_plug_in(kind: type) -> bool:
    """Whether a class of drafters is another package's."""
    return kind.__module__.partition(".")[0] != __name__.partition(".")[0]


def guard(kind: type[Any]) -> None:
    """Check what a class of drafters of another package proposes, and that it does not change the text of a run."""
    kind.propose = _checked(kind.propose)
    for name in ("start", "learn", "follow"):
        setattr(kind, name, _only_reading(getattr(kind, name)))


def _only_reading(tell: Callable[[Any, Outcome], None]) -> Callable[[Any, Outcome], None]:
    """The same method. It raises ValueError where it changed what the text is made of."""
    @wraps(tell)
    def told(drafter: Any, outcome: Outcome) -> None:
        before = _text_of(outcome)
        tell(drafter, outcome)
        if _text_of(outcome) != before:
            raise ValueError(f"{tell.__name__}() changed the outcome, which is only to be read")

    return told


def _text_of(outcome: Outcome) -> tuple[Any, ...]:
    """A copy of all that the text of a run is made of."""
    return [*outcome.context], [*outcome.verdict.tokens], [*outcome.verdict.path], outcome.reason


def _checked(
    propose: Callable[[Any, Sequence[int], DraftLimits], DraftTree]
) -> Callable[[Any, Sequence[int], DraftLimits], DraftTree]:
    """The same method. It raises TypeError or ValueError where it changed the context, or its tree cannot be used."""
    @wraps(propose)
    def checked(drafter: Any, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        before = [*context]
        tree = propose(drafter, context, limits)
        if [*context] != before:
            raise ValueError("propose() changed the context, which is only to be read")
        return _usable(tree)

    return checked


def _usable(tree: object) -> DraftTree:
    """The tree that ``propose`` returned. Raises TypeError, ValueError: it is none, an entry is not a number, an
    origin is not listed, a probability is not within 0 and 1, or what is shown of it is of another type."""
    if not isinstance(tree, DraftTree):
        raise TypeError(f"propose() returned {type(tree).__name__}, not a DraftTree")
    for name, kind in _SHOWN.items():
        shown = getattr(tree, name)
        if not isinstance(shown, kind | None):
            raise TypeError(f"draft tree: its {name} is of type {type(shown).__name__}, not {kind.__name__}")
    tree.tokens, tree.parents, tree.origin, tree.also = (
        [index(n) for n in column] for column in (tree.tokens, tree.parents, tree.origin, tree.also))
    tree.probs = [None if prob is None else float(prob) for prob in tree.probs]
    tree.origins = [_plain(origin) if isinstance(origin, Origin) else origin for origin in tree.origins]
    count = len(tree.origins)
    if not (all(0 <= n < count for n in tree.origin) and all(-1 <= n < count for n in tree.also)):
        raise ValueError(f"draft tree: an index of an origin, of which it lists {count}, is out of range")
    if not all(prob is None or 0 <= prob <= 1 for prob in tree.probs):
        raise ValueError("draft tree: a probability is not within 0 and 1")
    return tree


def _plain(origin: Origin) -> Origin:
    numbers: dict[str, Any] = {name: getattr(origin, name) for name in _NUMBERS}
    return replace(origin, **{name: None if n is None else index(n) for name, n in numbers.items()})
