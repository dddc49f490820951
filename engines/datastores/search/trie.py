"""Choosing what to draft: the heaviest nodes of the trie of continuations, or random continuations.

Source: REST, Algorithm 2 and Table 3. The authors' code counts prefixes in a heap, breaks ties at random and then drops
the deepest nodes to fit a size. Here are the exact top nodes, the same every time: by count, the shallower first, then
in order of token ids. No child counts more than its parent, so what is chosen is a tree. Where continuations have
weights (``collect``), these are summed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engines.datastores.search import native_lookups
from engines.datastores.search.continuations import END, Continuations
from engines.model.native import loaded


@dataclass(frozen=True, slots=True)
class Nodes:
    """Chosen nodes of the trie, depth first, the heavier child first; columns of equal length.

    Attributes:
        tokens, parents: token ids; index of each node's parent, which comes before it, -1 for the root.
        counts: continuations that begin with the path to the node, or the sum of their weights.
        rows: of the ``Continuations``: one of these, the heaviest. A node shares it with its first child, so that a
            heavy path comes from one passage.
        total: continuations counted, the root's count.
    """

    tokens: list[int]
    parents: list[int]
    counts: list[float]
    rows: list[int]
    total: float

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def probs(self) -> list[float]:
        """Each node's share of its parent's count."""
        return [n / (self.counts[p] if p >= 0 else self.total) for n, p in zip(self.counts, self.parents)]


def heaviest(found: Continuations, nodes: int, least: Sequence[float] = ()) -> Nodes:
    """The ``nodes`` heaviest nodes of the trie of all continuations. ``least``: for each depth, and never less than
    for the one before, the share of all below which nodes are left out, but for the heaviest one."""
    rows, depth = found.tokens.shape
    least = least or [0.0] * depth
    weights = found.weights
    if loaded.code is not None and nodes > 0 and rows and depth:
        tokens, parents, counts, at, total = native_lookups.heaviest(found.tokens, weights, nodes, least)
        return Nodes(tokens, parents, counts if weights is not None else list(map(int, counts)), at,
                     total if weights is not None else int(total))
    before = np.arange(rows + 1) if weights is None else np.append(0.0, weights.cumsum())
    if nodes < 1 or not rows or not depth:
        return Nodes([], [], [], [], before[-1].item())
    columns, lightest = np.ascontiguousarray(found.tokens.T), [share * before[-1].item() for share in least]
    begins, ends, depths, counts = _heaviest(columns, before, nodes, lightest)
    order = np.lexsort((depths, begins))  # depth first: a node's run of rows begins no later than its children's
    begins, ends, depths = begins[order], ends[order], depths[order]
    parents, above = [], [-1] * (depth + 1)
    for node, d in enumerate(depths.tolist()):
        parents.append(above[d])
        above[d + 1] = node
    tokens, at = found.tokens[begins, depths].tolist(), begins.tolist()
    if weights is not None:
        at = [begin + int(weights[begin:end].argmax()) for begin, end in zip(at, ends.tolist())]
    return _ordered(tokens, parents, counts[order].tolist(), at, before[-1].item())


def _heaviest(columns: np.ndarray, before: np.ndarray, nodes: int, least: Sequence[float]) -> tuple[np.ndarray, ...]:
    """First row, row after the last, depth (0 for children of the root) and count of the chosen nodes, by depth, then
    by row; those that count less than ``least`` of their depth are left out, but for the heaviest. ``before``
    [rows + 1] is what the rows before each count: a count is a difference of two, so that rounding makes none larger
    than its parent's.

    Rows are sorted: the rows below a node are a run, and at each depth a run begins where a row differs from the one
    above it, there or before.
    """
    rows = columns.shape[1]
    edges = np.zeros(rows, bool)
    edges[0] = True
    begins = ends = depths = np.zeros(0, np.int64)
    counts = np.zeros(0, before.dtype)
    floor = 0  # a deeper node has to count more than this
    for d, column in enumerate(columns):
        edges[1:] |= column[1:] != column[:-1]
        first = np.flatnonzero(edges)
        last = np.append(first[1:], rows)
        size, goes_on = before[last] - before[first], column[first] != END
        limit = least[d] if d else min(least[0], size[goes_on].max(initial=0))
        kept = (size >= limit) & goes_on & (size > floor)
        if not kept.any():
            break
        begins = np.concatenate([begins, first[kept]])
        ends = np.concatenate([ends, last[kept]])
        counts = np.concatenate([counts, size[kept]])
        depths = np.concatenate([depths, np.full(len(begins) - len(depths), d)])
        if len(begins) > nodes:
            best = _largest(counts, nodes)
            begins, ends, depths, counts = begins[best], ends[best], depths[best], counts[best]
        if len(begins) == nodes:
            floor = counts.min()
    return begins, ends, depths, counts


def _largest(values: np.ndarray, most: int) -> np.ndarray:
    """Which are the ``most`` largest, of equal ones the first: bool [values]."""
    least = np.partition(values, -most)[-most]
    kept = values > least
    kept[np.flatnonzero(values == least)[: most - np.count_nonzero(kept)]] = True
    return kept


def drawn(found: Continuations, nodes: int, seed: Sequence[int] | int, sequences: int | None = None) -> Nodes:
    """Whole continuations drawn at random, until their trie has ``nodes`` nodes; the last is cut where it must be.

    Args:
        seed: of ``numpy.random.default_rng``: the same seed draws the same.
        sequences: draws at most this many (REST's Table 3: 8 of 8 tokens, against 64 nodes of the trie).

    Returns:
        Counts are those among what was drawn.
    """
    order = np.random.default_rng(seed).permutation(len(found))[:sequences].tolist()
    tokens, parents, counts, rows, known, taken = [], [], [], [], {}, 0
    for row in order if nodes > 0 else ():
        node, taken = -1, taken + 1
        for token in found.tokens[row].tolist():
            if token == END or ((node, token) not in known and len(tokens) == nodes):
                break
            if (node, token) not in known:
                known[node, token] = len(tokens)
                for column, value in ((tokens, token), (parents, node), (counts, 0), (rows, row)):
                    column.append(value)
            node = known[node, token]
            counts[node] += 1
        if len(tokens) == nodes:
            break
    return _ordered(tokens, parents, counts, rows, taken)


def _ordered(tokens: list[int], parents: list[int], counts: list[int], rows: list[int], total: int) -> Nodes:
    """Nodes in depth-first order; of siblings the heavier comes first, and equal ones keep their order."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order, open_ = [], [-1]
    while open_:
        node = open_.pop()
        if node >= 0:
            order.append(node)
        open_ += sorted(reversed(children.get(node, ())), key=counts.__getitem__)  # the heaviest on top
    index = {-1: -1} | {old: new for new, old in enumerate(order)}
    out = Nodes([tokens[n] for n in order], [index[parents[n]] for n in order], [counts[n] for n in order],
                [rows[n] for n in order], total)
    for node in range(len(out) - 1, 0, -1):
        if out.parents[node] == node - 1:  # its first child
            out.rows[node - 1] = out.rows[node]
    return out
