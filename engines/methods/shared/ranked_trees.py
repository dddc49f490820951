"""Trees of candidates that are ranked below every node before anything is verified: those of given ranks, and the
likeliest by the product of chances."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple


class RankedToken(NamedTuple):
    """A token that may follow, its chance, and its ``place``: what its own candidates are looked up by."""

    token: int
    chance: float
    place: Hashable


Below = Callable[[Any], Sequence[RankedToken]]
"""The candidates of a place, the first rank first; empty at the end of a path."""


def of_ranks(paths: Iterable[str], root: Hashable, below: Below) -> Iterator[tuple[int, int, float]]:
    """(token, parent, chance) of the nodes of a published tree as far as there are candidates, -1 for the root's.
    ``paths``: for each node the ranks on its path, a digit each, parents before their children."""
    places, nodes = {"": root}, {"": -1}
    for path in paths:
        above, rank = path[:-1], int(path[-1])
        found = below(places[above]) if above in places else ()
        if rank < len(found):
            token, chance, places[path] = found[rank]
            nodes[path] = len(nodes) - 1
            yield token, nodes[above], chance


def best_first(root: Hashable, below: Below) -> Iterator[tuple[int, int, float]]:
    """(token, parent, chance) of nodes, the likeliest paths first; candidates of equal chance by rank."""
    pushed = count()
    open_: list[tuple[float, int, float, list[RankedToken], int, int]] = []

    def push(reach: float, parent: int, found: list[RankedToken], rank: int) -> None:
        if rank < len(found):
            heapq.heappush(open_, (-reach * found[rank].chance, next(pushed), reach, found, rank, parent))

    def ranked(place: Hashable) -> list[RankedToken]:
        return sorted(below(place), key=lambda candidate: -candidate.chance)

    push(1.0, -1, ranked(root), 0)
    for number in count():
        if not open_:
            return
        lost, _, reach, found, rank, parent = heapq.heappop(open_)
        token, chance, place = found[rank]
        yield token, parent, chance
        push(reach, parent, found, rank + 1)
        push(-lost, number, ranked(place), 0)
