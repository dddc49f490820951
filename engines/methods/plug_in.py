"""What a plug-in's drafter proposes, checked at once: numbers of NumPy or torch become Python's, and what would break
the run later is an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.report.events import Origin

_NUMBERS = ("place", "match", "line", "passage")  # of an origin


def is_plug_in(kind: type) -> bool:
    """Whether a class of drafters is another package's."""
    return kind.__module__.partition(".")[0] != __name__.partition(".")[0]


def checked_proposal(
    propose: Callable[[Sequence[int], DraftLimits], DraftTree], context: Sequence[int], limits: DraftLimits
) -> DraftTree:
    """The tree that ``propose`` returns. Raises TypeError, ValueError: it is none, an entry is not a number, an
    origin is not listed, a probability is not within 0 and 1, or the context was changed."""
    before = len(context), context[-1]
    tree = propose(context, limits)
    if not isinstance(tree, DraftTree):
        raise TypeError(f"propose() returned {type(tree).__name__}, not a DraftTree")
    if not context or (len(context), context[-1]) != before:
        raise ValueError("propose() changed the context, which is only to be read")
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
