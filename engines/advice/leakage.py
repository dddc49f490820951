"""Answers that lie in a datastore: with them retrieval shows that it can copy an answer, not that it helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engines.datastores.search.continuations import Lookup

_WINDOW, _STEP = 16, 8  # tokens


def leak_check(stores: Sequence[Lookup]) -> Callable[[Sequence[int]], bool]:
    """Whether at least half of an answer's passages of 16 tokens occur in these datastores; shorter answers are not
    told apart from what anybody would write."""

    def leaked(tokens: Sequence[int]) -> bool:
        ends = range(_WINDOW, len(tokens) + 1, _STEP)
        found = sum(any(store.longest(tokens[:end], _WINDOW, _WINDOW) is not None for store in stores) for end in ends)
        return len(ends) > 0 and 2 * found >= len(ends)

    return leaked
