"""Draft trees that grow by levels: of the likeliest tokens, as EAGLE-2 expands (Li et al. 2024), or of random draws.

For the rejection law, whether another draw is made, and below which node, is decided from the draws before it, and each
draw is kept and tried. Leaving one out because of what it says would bias the law (``DraftTree.select`` refuses).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engines.core.sampling import to_numpy
from engines.core.tree import DraftTree
from engines.methods.shared.predictor import Predictor, over_vocabulary
from engines.report.events import Origin

if TYPE_CHECKING:
    import torch

    from engines.core.lossless_laws import Law, Rejection

_TRY = 0.7  # of a draw that is tried, the chance of acceptance by which distinct draws are placed


@dataclass(frozen=True, slots=True)
class TreeDraft:
    """What a tree drafter hands to one that it is a part of (its method ``grow``): a tree from which no budget chose.

    Attributes:
        tree: its nodes are point masses, siblings distinct.
        seconds: what drafting it takes, by the drafter's price; 0 where that is not known.
        favourites: the drafter's likeliest first tokens, the best first; empty where it was not asked.
        ranks: bool [vocabulary], the first tokens that the drafter can rank at all: a head with a vocabulary of its own
            has no logits for the others. None where it was not asked.
    """

    tree: DraftTree
    seconds: float = 0.0
    favourites: tuple[int, ...] = ()
    ranks: np.ndarray | None = None

    def begins(self, token: int) -> bool:
        """Whether the drafter would begin with this token, or cannot tell."""
        return token in self.favourites or (self.ranks is not None and not bool(self.ranks[token]))


class ExpandedTree:
    """Level by level the ``top_k`` nodes of highest path probability get ``top_k`` children each. A path's probability
    never exceeds its parent's, so with ties going to the earlier node the best nodes are closed under parents."""

    def __init__(
        self, predictor: Predictor, law: Law, origin: Origin, context: Sequence[int], ends: Collection[int], top_k: int
    ) -> None:
        self._predictor, self._law, self._context, self._ends = predictor, law, context, ends
        self.top_k = top_k
        self.tree = DraftTree(origins=[origin])
        self.levels = 0
        self._scores: list[float] = []  # log probabilities of the paths
        self._beam: list[int] = [-1]
        self._rows: dict[int, int] = {}
        self.favourites: tuple[int, ...] = ()
        self.ranks: np.ndarray | None = None

    def grow(self, more: Callable[[list[float]], bool], favourites: int = 0) -> None:
        """Expand while ``more`` says so, given the chance that something of each level is accepted; keep the
        ``favourites`` likeliest first tokens."""
        reach: list[float] = []
        while self._beam and more(reach):
            logits = after_nodes(self._predictor, self._context, self.tree, self._beam, self._rows)
            if not self.levels and favourites:
                self.favourites = self._likeliest(logits, favourites)
                ranked = np.ones(logits.shape[-1], bool)
                self.ranks = over_vocabulary(ranked, self._predictor.drafts, self._predictor.vocab_size)
            found = self._children(logits, len(self._context) + self.levels)
            self.levels += 1
            reach.append(min(1.0, sum(math.exp(self._scores[i]) for i in found)))
            open_nodes = [i for i in found if self.tree.tokens[i] not in self._ends]
            self._beam = sorted(sorted(open_nodes, key=lambda i: -self._scores[i])[: self.top_k])
        self._predictor.drop()

    def best(self, nodes: int) -> DraftTree:
        """At most ``nodes`` of the nodes, those of highest path probability."""
        order = sorted(range(len(self.tree)), key=lambda i: -self._scores[i])
        return self.tree.select(sorted(order[:nodes]))

    def _likeliest(self, logits: torch.Tensor, count: int) -> tuple[int, ...]:
        """Tokens by the law's scores of the root's logits [1, n], the best first."""
        scores = self._law.scores(logits, len(self._context), self._predictor.drafts)[0]
        values, found = scores.topk(min(count, len(scores)))
        return tuple(t for t, value in zip(self._tokens(found), values.tolist()) if value > float("-inf"))

    def _tokens(self, found: torch.Tensor) -> list:
        """Indices of logits as tokens."""
        drafts = self._predictor.drafts
        return found.tolist() if drafts is None else drafts[found.cpu().numpy()].tolist()

    def _children(self, logits: torch.Tensor, position: int) -> list[int]:
        """Add the ``top_k`` likeliest children of each node of the beam, by its logits [beam, n]."""
        log_probs = self._law.scores(logits, position, self._predictor.drafts).log_softmax(-1)
        values, found = log_probs.topk(min(self.top_k, log_probs.shape[-1]), -1)
        first, tree = len(self.tree), self.tree
        for node, row_values, row_tokens in zip(self._beam, values.tolist(), self._tokens(found)):
            above = self._scores[node] if node >= 0 else 0.0
            for value, token in zip(row_values, row_tokens):
                if value > float("-inf"):
                    tree.tokens.append(token)
                    tree.parents.append(node)
                    tree.probs.append(math.exp(value))
                    tree.origin.append(0)
                    self._scores.append(above + value)
        return list(range(first, len(tree)))


def after_nodes(
    predictor: Predictor, context: Sequence[int], tree: DraftTree, beam: list[int], rows: dict[int, int]
) -> torch.Tensor:
    """Logits [beam, n] after each node of the beam, in one forward; [-1] stands for the root. ``rows`` says in
    which row of the predictor's forwards each earlier node was read, and gets these."""
    if beam == [-1]:
        return predictor.after(context)[None]
    parents = [rows.get(tree.parents[i], -1) for i in beam]
    rows |= {node: len(rows) + row for row, node in enumerate(beam)}
    return predictor.level([tree.tokens[i] for i in beam], parents)


class DrawnTree:
    """Grows a tree level by level, at most ``width`` draws a level and ``nodes`` nodes in all.

    Independent: ``width`` paths are drawn, and share their prefixes where they agree (SpecInfer, Miao et al. 2024); a
    repeated draw adds no node, but is tried.

    Distinct: siblings are drawn without replacement. Each draw is made where it is likeliest to be accepted, by its
    rank among its siblings and its parent's: a draw is as good as its distribution, whichever token comes (the
    assumption of Sequoia, Chen et al. 2024, whose trees are planned ahead and not level by level).
    """

    def __init__(
        self, law: Rejection, origin: Origin, predictor: Predictor, width: int, nodes: int, *, distinct: bool
    ) -> None:
        self.law, self.width, self.nodes, self.count = law, width, nodes, 0
        self._drafts, self._size = predictor.drafts, predictor.vocab_size
        self.tree = DraftTree(origins=[origin], dists={}, distinct=distinct, draws=None if distinct else {})
        self._paths = Counter({-1: width})  # independent: drawn paths that go through a node
        self._next = {-1: 1.0}  # distinct: the chance that a text comes to a node and to the next draw below it
        self._rest: dict[int, np.ndarray] = {}  # distinct: a node's distribution without the children drawn

    def level(self, frontier: Sequence[int], logits: torch.Tensor) -> list[int]:
        """Draw below these nodes, given the drafter's logits [nodes, n] after each. Returns what is new."""
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
        return [over_vocabulary(sampling.probs(sampling.row(row)), self._drafts, self._size)
                for row in to_numpy(logits)]

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
