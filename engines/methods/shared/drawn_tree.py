"""A draft tree of random draws, for the rejection law: siblings drawn independently or without replacement.

Whether another draw is made, and below which node, is decided from the draws before it, and each draw is kept and
tried. Leaving one out because of what it says would bias the law (``DraftTree.select`` refuses).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engines.core.sampling import to_numpy
from engines.core.tree import DraftTree
from engines.report.events import Origin

if TYPE_CHECKING:
    import numpy as np
    import torch

    from engines.core.lossless_laws import Rejection

_TRY = 0.7  # of a draw that is tried, the chance of acceptance by which distinct draws are placed


class DrawnTree:
    """Grows a tree level by level, at most ``width`` draws a level and ``nodes`` nodes in all.

    Independent: ``width`` paths are drawn, and share their prefixes where they agree (SpecInfer, Miao et al. 2024); a
    repeated draw adds no node, but is tried.

    Distinct: siblings are drawn without replacement. Each draw is made where it is likeliest to be accepted, by its
    rank among its siblings and its parent's: a draw is as good as its distribution, whichever token comes (the
    assumption of Sequoia, Chen et al. 2024, whose trees are planned ahead and not level by level).
    """

    def __init__(self, law: Rejection, origin: Origin, width: int, nodes: int, *, distinct: bool) -> None:
        self.law, self.width, self.nodes, self.count = law, width, nodes, 0
        self.tree = DraftTree(origins=[origin], dists={}, distinct=distinct, draws=None if distinct else {})
        self._paths = Counter({-1: width})  # independent: drawn paths that go through a node
        self._next = {-1: 1.0}  # distinct: the chance that a text comes to a node and to the next draw below it
        self._rest: dict[int, np.ndarray] = {}  # distinct: a node's distribution without the children drawn

    def level(self, frontier: Sequence[int], logits: torch.Tensor) -> list[int]:
        """Draw below these nodes, given the drafter's logits [nodes, vocabulary] after each. Returns what is new."""
        first, tree = len(self.tree), self.tree
        for node, dist in zip(frontier, self._beliefs(logits)):
            tree.dists[node] = dist
        for node in self._distinct(frontier) if tree.distinct else self._independent(frontier):
            if len(tree) >= self.nodes:
                break
            self._draw(node)
        return list(range(first, len(tree)))

    def _beliefs(self, logits: torch.Tensor) -> list[np.ndarray]:
        """What to draw from after each node, float64 [vocabulary]."""
        sampling = self.law.sampling
        return [sampling.probs(sampling.row(row)) for row in to_numpy(logits)]

    def _independent(self, frontier: Sequence[int]) -> Iterator[int]:
        for node in frontier:
            yield from [node] * self._paths[node]

    def _distinct(self, frontier: Sequence[int]) -> Iterator[int]:
        self._rest = {node: self.tree.dists[node].copy() for node in frontier}
        for _ in range(self.width):
            node = max(frontier, key=self._next.__getitem__)
            if self._next[node] > 0:
                yield node

    def _draw(self, parent: int) -> None:
        tree, q = self.tree, self.tree.dists[parent]
        token = self.law.rng.draw(self._rest[parent] if tree.distinct else q)
        node = tree.add(token, parent, float(q[token]), 0)
        self.count += 1
        if tree.distinct:
            self._rest[parent][token] = 0
            self._next[node] = self._next[parent] * _TRY
            self._next[parent] *= (1 - _TRY) if self._rest[parent].any() else 0.0
        else:
            tree.draws.setdefault(parent, []).append(node)
            self._paths[node] += 1
