"""A draft tree whose nodes dice chose, for the rejection law: siblings drawn independently or without replacement.

Whether another draw is made, and below which node, is decided from the draws before it, and each draw is kept and
tried. Leaving one out because of what it says would bias the law (``DraftTree.select`` refuses).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engines.events import Origin
from engines.tree import DraftTree

if TYPE_CHECKING:
    import numpy as np
    import torch

    from engines.laws import Rejection


class DrawnTree:
    """Grows a tree level by level, at most ``width`` draws a level and ``nodes`` nodes in all.

    Independent: ``width`` paths are drawn, and share their prefixes where they agree (SpecInfer, Miao et al. 2024); a
    repeated draw adds no node, but is tried. Distinct: each draw is made where it is worth most, by the probability of
    the path times what is left below it (an own allotment of EAGLE's draws without replacement).
    """

    def __init__(self, law: Rejection, origin: Origin, width: int, nodes: int, *, distinct: bool) -> None:
        self.law, self.width, self.nodes, self.count = law, width, nodes, 0
        self.tree = DraftTree(origins=[origin], dists={}, distinct=distinct, draws=None if distinct else {})
        self._paths = Counter({-1: width})  # drawn paths that go through a node
        self._chance = {-1: 1.0}  # of a node's path, by the drafter
        self._rest: dict[int, np.ndarray] = {}  # distinct: a node's distribution without the children drawn
        self._left: dict[int, float] = {}

    def level(self, frontier: Sequence[int], logits: torch.Tensor) -> list[int]:
        """Draw below these nodes, given the drafter's logits [nodes, vocabulary] after each. Returns what is new."""
        first, tree = len(self.tree), self.tree
        for node, row in zip(frontier, self.law.beliefs(logits)):
            tree.dists[node] = row
        for node in self._distinct(frontier) if tree.distinct else self._independent(frontier):
            if len(tree) >= self.nodes:
                break
            self._draw(node)
        return list(range(first, len(tree)))

    def reach(self, nodes: Sequence[int]) -> float:
        """The drafter's probability that the text goes through one of these nodes of a level."""
        return min(1.0, sum(self._chance[node] for node in nodes))

    def _independent(self, frontier: Sequence[int]) -> Iterator[int]:
        for node in frontier:
            yield from [node] * self._paths[node]

    def _distinct(self, frontier: Sequence[int]) -> Iterator[int]:
        for node in frontier:
            self._rest[node], self._left[node] = self.tree.dists[node].copy(), 1.0
        for _ in range(self.width):
            node = max(frontier, key=lambda n: self._chance[n] * self._left[n])
            if self._left[node] <= 0:
                return
            yield node

    def _draw(self, parent: int) -> None:
        tree, q = self.tree, self.tree.dists[parent]
        token = self.law.dice.draw(self._rest[parent] if tree.distinct else q)
        node = tree.add(token, parent, float(q[token]), 0)
        self._chance[node] = self._chance[parent] * float(q[token])
        self.count += 1
        if tree.distinct:
            self._rest[parent][token] = 0
            self._left[parent] = float(self._rest[parent].sum())
        else:
            tree.draws.setdefault(parent, []).append(node)
            self._paths[node] += 1
