"""Rejection: speculative sampling (Leviathan et al. 2023, Chen et al. 2023), recursive over siblings.

A drafted token x is accepted with ``min(1, p(x) / q(x))``, else the law goes on with ``norm(max(0, p - q))``: it tries
the next sibling against that, and in the end draws from it. A draft without a distribution is a point mass, q = 1 at
its token.

Siblings drawn independently (SpecInfer, Miao et al. 2024) share one q, and each draw is tried, repeats too: a repeat
is never accepted, since after a rejection nothing is left of its token, but its rejection takes q from p once more.
Leaving it out would bias the text. Siblings drawn without replacement (EAGLE, Li et al. 2024) were each drawn from q
without the earlier ones, and are tried against that.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engines.core.law import Law, Verdict
from engines.core.sampling import Sampling, SeededRng, softmax, to_numpy
from engines.core.tree import DraftTree
from engines.report.events import Trial


class Rejection(Law):
    """Speculative sampling with dice: the distribution is the target's, the text depends on the drafter too."""

    name = "rejection"

    def __init__(self, sampling: Sampling, seed: int, dice: SeededRng | None = None) -> None:
        super().__init__(sampling)
        self.dice = dice or SeededRng(seed)

    @property
    def draws(self) -> bool:
        return not self.sampling.greedy

    def beliefs(self, logits: torch.Tensor) -> list[np.ndarray]:
        """For drafters that draw trees (where ``draws``): from logits [rows, vocabulary] what to draw from, float64."""
        return [self.sampling.probs(self.sampling.row(row)) for row in to_numpy(logits)]

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, np.ndarray]:
        row = self.sampling.row(to_numpy(logits))
        dist = self.sampling.probs(row)
        token = self.dice.draw(dist)
        belief = softmax(row) if self.sampling.greedy else dist
        return token, float(belief[token]), dist

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table, tries, verdict, node = to_numpy(logits), tree.tries(), Verdict(), -1
        while True:
            row = self.sampling.row(table[node + 1])
            node, p, trials = self._try(tree, node, tries.get(node, ()), self.sampling.probs(row))
            verdict.saw(row, self.dice.draw(p) if node is None else tree.tokens[node])
            verdict.trials.append(trials)
            if node is None:
                return verdict.looked()
            verdict.path.append(node)

    def _try(
        self, tree: DraftTree, parent: int, tried: Sequence[int], p: np.ndarray
    ) -> tuple[int | None, np.ndarray, tuple[Trial, ...]]:
        """Try what was drafted below a node: the accepted child or None, the residual distribution, the throws."""
        q = tree.dists.get(parent) if tree.dists is not None else None
        trials = []
        for child in tried:
            token = tree.tokens[child]
            px, qx = float(p[token]), float(q[token]) if q is not None else 1.0
            throw, accepted = self.dice.accept(min(1.0, px / qx) if qx > 0 else 0.0)
            trials.append(Trial(child, px, qx, throw, accepted))
            if accepted:
                return child, p, tuple(trials)
            p = without(p, token) if q is None else _residual(p, q)
            if q is not None and tree.distinct:
                q = without(q, token)
        return None, p, tuple(trials)


def without(p: np.ndarray, token: int) -> np.ndarray:
    """A distribution without one token; itself where nothing else is left."""
    rest = p.copy()
    rest[token] = 0
    total = rest.sum()
    return rest / total if total > 0 else p


def _residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(0, p - q)); p itself where nothing is left (p equal to q up to rounding)."""
    rest = np.maximum(p - q, 0)
    total = rest.sum()
    return rest / total if total > 0 else p
