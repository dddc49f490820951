"""What a plug-in's drafter proposes, checked at once: numbers of NumPy or torch become Python's, and what would break
the run later, or change its text, is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import wraps
from operator import index
from typing import Any

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.budget import BudgetChoice
from engines.methods.field_types import fits
from engines.methods.notes import Note
from engines.model.feature_request import FeatureRequest
from engines.report.events import HeadReads, Layers, Origin, Retrieval

_SHOWN = {"note": Note, "budget": BudgetChoice, "retrieval": Retrieval}  # of a draft
_NUMBERS = ("place", "match", "line", "passage")  # of an origin
_MADE = {"features": FeatureRequest, "searched": Mapping[tuple[str, str], int], "draws_chains": bool}
_STARTED = {"layers": Layers | None, "reads": HeadReads | None}
_NEAR_ONE = 1e-3  # that a sum of probabilities in half precision may be off


def is_plug_in(made: Any) -> bool:
    """Whether a class of drafters, or a method of one, is another package's."""
    return made.__module__.partition(".")[0] != __name__.partition(".")[0]


def guard(kind: type[Any]) -> None:
    """Check what a class of drafters of another package says and proposes, and that it does not change a run."""
    kind.remark = _describing(kind.remark)
    kind.propose = _checked(kind.propose, "propose()")
    if is_plug_in(kind.draft):  # else it calls propose
        kind.draft = _checked(kind.draft, "draft()")
    for name in ("start", "learn", "follow"):
        setattr(kind, name, _only_reading(getattr(kind, name), f"{name}()"))


def _describing(remark: Callable[[Any], str]) -> Callable[[Any], str]:
    """The same method, the first that is called of a drafter. It raises TypeError where what a run asks of the drafter
    is of another type."""
    @wraps(remark)
    def said(drafter: Any) -> str:
        _check_types(drafter, _MADE)
        found = remark(drafter)
        if not isinstance(found, str):
            raise TypeError(f"remark() returned {type(found).__name__}, not a string")
        return found

    return said


def _check_types(drafter: Any, types: Mapping[str, Any]) -> None:
    for name, kind in types.items():
        if not fits(getattr(drafter, name), kind):
            raise TypeError(f"the drafter's {name} is not of the type {getattr(kind, '__name__', kind)}")


def _only_reading(tell: Callable[[Any, Outcome], None], name: str) -> Callable[[Any, Outcome], None]:
    """The same method. It raises TypeError, ValueError where it changed the outcome or the target's cache, or set what
    is shown of the drafter to another type."""
    @wraps(tell)
    def told(drafter: Any, outcome: Outcome) -> None:
        before = _copy_of(outcome)
        with _cache_kept(drafter, name):
            tell(drafter, outcome)
        if _copy_of(outcome) != before:
            raise ValueError(f"{name} changed the outcome, which is only to be read")
        _check_types(drafter, _STARTED)

    return told


def _copy_of(outcome: Outcome) -> list[Any]:
    """All that an outcome says; of tensors and the like, which they are."""
    values = [getattr(part, field.name) for part in (outcome, outcome.verdict, outcome.tree) for field in fields(part)]
    return [[*value] if isinstance(value, list) else value for value in values]


@contextmanager
def _cache_kept(drafter: Any, name: str) -> Iterator[None]:
    """Raises ValueError where the target's KV cache is another one at the end."""
    target = getattr(getattr(drafter, "resources", None), "target", None)
    if target is None:
        yield
        return
    before, pending = [*target.tokens], target.pending
    yield
    if (target.tokens, target.pending) != (before, pending):
        raise ValueError(f"{name} changed the target's KV cache: it left {len(target.tokens)} rows and"
                         f" {target.pending} pending, not {len(before)} and {pending}")


def _checked(
    propose: Callable[[Any, Sequence[int], DraftLimits], DraftTree], name: str
) -> Callable[[Any, Sequence[int], DraftLimits], DraftTree]:
    """The same method. It raises TypeError or ValueError where it changed the context or the target's cache, or its
    tree cannot be used."""
    @wraps(propose)
    def checked(drafter: Any, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        before = [*context]
        with _cache_kept(drafter, name):
            tree = propose(drafter, context, limits)
        if [*context] != before:
            raise ValueError(f"{name} changed the context, which is only to be read")
        if not isinstance(tree, DraftTree):
            raise TypeError(f"{name} returned {type(tree).__name__}, not a DraftTree")
        _usable(tree)
        if tree.dists is not None or tree.draws is not None:
            _check_draws(tree, drafter.resources.vocab_size)
        return tree

    return checked


def _usable(tree: DraftTree) -> None:
    """Make the columns of a tree numbers of Python. Raises TypeError, ValueError: an entry is not a number, an origin
    is not listed, a probability is not within 0 and 1, or what is shown of it is of another type."""
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


def _check_draws(tree: DraftTree, vocab_size: int) -> None:
    """Make what a tree was drawn from arrays of NumPy. Raises TypeError, ValueError: it is of no node, no distribution
    over the vocabulary, or a draw is not a child of its parent."""
    import numpy as np  # late: engines are listed without it

    nodes = range(len(tree.parents))
    if tree.draws is not None:
        tree.draws = {index(parent): [index(node) for node in drawn] for parent, drawn in tree.draws.items()}
        if not all(node in nodes and tree.parents[node] == parent
                   for parent, drawn in tree.draws.items() for node in drawn):
            raise ValueError("draft tree: draws lists a node under another parent than its own")
    if tree.dists is not None:
        tree.dists = {index(parent): np.asarray(dist, np.float64) for parent, dist in tree.dists.items()}
        for parent, dist in tree.dists.items():
            if dist.shape != (vocab_size,) or not (dist.min() >= 0 and abs(dist.sum() - 1) <= _NEAR_ONE):
                raise ValueError(f"draft tree: dists[{parent}] is no distribution over a vocabulary of {vocab_size}")
        if not tree.dists.keys() <= {-1, *nodes}:
            raise ValueError("draft tree: dists has a key that is no node")


def _plain(origin: Origin) -> Origin:
    numbers: dict[str, Any] = {name: getattr(origin, name) for name in _NUMBERS}
    return replace(origin, **{name: None if n is None else index(n) for name, n in numbers.items()})
