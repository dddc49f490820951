"""The trie of continuations that don't weigh the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engines.core.tree import DraftTree
from engines.datastores.search.continuations import END


def weighted_trie(rows: Sequence[Iterable[int]], weights: Sequence[float], nodes: int) -> DraftTree:
    """Sequences merged by their prefixes. A node's probability is the share of its parent's weight that goes on to it;
    what ends at the parent goes on to none.

    Args:
        rows: token ids, up to ``END`` if it is among them. Siblings come in the order of their first rows.
        weights: of the rows, at least 0.
        nodes: at most this many, the heaviest, of equal ones those of earlier rows.

    Returns:
        A tree without origins: a node's ``origin`` is the index of the first row through it.
    """
    tree, mass, total = DraftTree(), [], 0.0
    for index, (row, weight) in enumerate(zip(rows, map(float, weights))):
        node = -1
        total += weight
        for token in row:
            if token == END:
                break
            node = tree.add(token, node, None, index)
            if node == len(mass):
                mass.append(0.0)
            mass[node] += weight
    shares = [(m, mass[parent] if parent >= 0 else total) for m, parent in zip(mass, tree.parents)]
    tree.probs = [m / above if above else 0.0 for m, above in shares]
    kept = sorted(sorted(range(len(tree)), key=lambda node: -mass[node])[:nodes])  # a parent is no lighter, and first
    return tree.select(kept) if len(kept) < len(tree) else tree
