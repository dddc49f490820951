"""The trie of continuations that don't weigh the same."""

from __future__ import annotations

from collections.abc import Sequence

from engines.core.tree import DraftTree
from engines.datastores.search.continuations import END


def weighted_trie(
    rows: Sequence[Sequence[int]], weights: Sequence[float], nodes: int, least: Sequence[float] = ()
) -> DraftTree:
    """Sequences merged by their prefixes. A node's probability is the share of its parent's weight that goes on to it;
    what ends at the parent goes on to none.

    Args:
        rows: token ids, up to ``END`` if it is among them. Siblings come in the order of their first rows.
        weights: of the rows, at least 0.
        nodes: at most this many, the heaviest, of equal ones those of earlier rows.
        least: for each depth, nodes of a smaller share of all weight are left out, but for the heaviest one.

    Returns:
        A tree without origins, level by level: a node's ``origin`` is the index of the first row through it.
    """
    weights = [float(weight) for weight in weights]  # events hold Python's numbers
    tree, mass, total = DraftTree(), [], sum(weights)
    depth, level = 0, {-1: list(range(len(rows)))}
    while level:
        found = [(parent, token, same, sum([weights[row] for row in same]))
                 for parent, through in level.items() for token, same in _by_token(rows, through, depth).items()]
        limit = least[depth] * total if depth < len(least) else 0.0
        if not depth:
            limit = min(limit, max([weight for *_, weight in found], default=0.0))
        level = {}
        for parent, token, same, weight in found:
            if weight >= limit:
                above = mass[parent] if parent >= 0 else total
                level[len(mass)] = same
                tree.add(token, parent, weight / above if above else 0.0, same[0])
                mass.append(weight)
        depth += 1
    heaviest = sorted(range(len(tree)), key=lambda node: (-mass[node], tree.origin[node], node))
    return tree.select(sorted(heaviest[:nodes]))  # a parent is no lighter, and first


def _by_token(rows: Sequence[Sequence[int]], through: Sequence[int], depth: int) -> dict[int, list[int]]:
    """Of some rows those that go on at a depth, by the token there."""
    found: dict[int, list[int]] = {}
    for row in through:
        if depth < len(rows[row]) and (token := rows[row][depth]) != END:
            found.setdefault(token, []).append(row)
    return found
