"""Typical acceptance: Medusa's biased law (Cai et al. 2024).

A drafted token x is kept where ``p(x) > min(epsilon, delta * exp(-H(p)))``, without dice; the longest path wins, the
likelier one among equals. At temperature 0 that is matching the argmax. The token after the path is drawn from p, so
that all of the bias is the test's (Medusa's code takes the argmax there, at any temperature).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engines.core.tree import DraftTree
from engines.laws.lossy import Belief, Lossy, rows_of
from engines.report.events import Trial

EPSILON = 0.09  # Medusa's posterior_threshold
DELTA = 0.3  # Medusa's posterior_alpha


class Typical(Lossy):
    """Keeps what the target finds likely enough. Not lossless at temperature > 0."""

    name = "typical"

    def _choose(
        self, tree: DraftTree, beliefs: Iterable[Belief]
    ) -> tuple[list[int], Mapping[int, Sequence[Trial]], float]:
        trials: dict[int, list[Trial]] = {}
        chances, kept = [0.0] * len(tree), [False] * len(tree)
        for node, below, p in beliefs:
            bound = threshold(p)
            for child in below:
                chances[child] = float(p[tree.tokens[child]])
                kept[child] = chances[child] > bound
            trials[node] = [Trial(child, chances[child], 1.0, bound, kept[child]) for child in below]
        path, best = [], (0, 0.0)
        for row in rows_of(tree):
            length = next((i for i, node in enumerate(row) if not kept[node]), len(row))
            rank = (length, math.prod(chances[node] for node in row[:length]))
            if length and rank > best:
                path, best = row[:length], rank
        return path, trials, 1 - chances[path[0]] if path else 0.0  # all of the first token's mass is on one token


def threshold(p: np.ndarray) -> float:
    """min(epsilon, delta * exp(-H)) of a distribution [vocabulary], H in nats as Medusa computes it."""
    entropy = -float((p * np.log(p + 1e-5)).sum())
    return min(EPSILON, DELTA * math.exp(-entropy))
