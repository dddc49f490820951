"""Block verification: a lossless law for chains that were drawn, which keeps at least as many tokens as rejection."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from engines.core.lossless_laws import Rejection, Verdict
from engines.core.sampling import Sampling, to_numpy
from engines.core.tree import DraftTree, Trial
from engines.randomness import SeededRng, bound, residual


class BlockVerification(Rejection):
    """A chain that was drawn is judged as a whole (Sun et al. 2024, algorithm 2).

    ``weights[i]``, ``min(1, weights[i-1] * p(x_i) / q(x_i))``, is the chance that the first i tokens stay, whatever
    comes after them: a token that p likes better than q makes up for an earlier one that it likes less. How many stay
    is drawn from the whole chain down, by a bound at each place. So at least as many tokens are accepted as token by
    token, and the text keeps the target's distribution.

    A chain may end where its own tokens say so: a place is judged by the tokens above it alone. What has siblings, or
    was not drawn at all, is judged as by ``Rejection``, which accepts as much of point masses.
    """

    name = "block"

    def __init__(self, sampling: Sampling, seed: int, rng: SeededRng | None = None) -> None:
        super().__init__(sampling, seed, rng)
        self.wants_chains = self.draws

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        if not self.draws or not drawn_chain(tree):
            return super().judge(tree, logits, position)
        rows = [self.sampling.row(row) for row in to_numpy(logits)]
        ps = [self.sampling.probs(row) for row in rows]
        weights, bounds = self._bounds(tree, ps)
        kept, tries = 0, []
        for node in reversed(range(len(tree))):
            drawn, accepted = self.rng.accept(bounds[node])
            token = tree.tokens[node]
            px, qx = float(ps[node][token]), float(_drafted(tree, node)[token])
            tries.append(Trial(node, px, qx, drawn, accepted, bounds[node]))
            if accepted:
                kept = node + 1
                break
        left = ps[kept] if kept == len(tree) else residual(weights[kept] * ps[kept], _drafted(tree, kept))
        return Verdict(
            [*range(kept)], [*tree.tokens[:kept], self.rng.draw(left)], rows[: kept + 1],
            trials=[*[()] * (kept - 1), *[tuple(tries[-1:])] * bool(kept), tuple(tries[: len(tries) - bool(kept)])])

    def _bounds(self, tree: DraftTree, ps: Sequence[np.ndarray]) -> tuple[list[float], list[float]]:
        """The weight of each beginning of the chain, the empty one first; and for each node what the random draw must
        be below for the chain to stay up to it, where it does not stay further."""
        weights, bounds = [1.0], []
        for node, token in enumerate(tree.tokens):
            weight = bound(weights[-1] * float(ps[node][token]), float(_drafted(tree, node)[token]))
            weights.append(weight)
            if node + 1 == len(tree):
                bounds.append(weight)
            else:
                left = float(np.maximum(weight * ps[node + 1] - _drafted(tree, node + 1), 0).sum())
                bounds.append(left / (left + 1 - weight) if weight < 1 else 1.0)
        return weights, bounds


def drawn_chain(tree: DraftTree) -> bool:
    """Whether a draft is one path, each of whose nodes was drawn once from a distribution."""
    return bool(tree.dists) and tree.draws is None and not tree.distinct and all(
        parent == node - 1 and parent in tree.dists for node, parent in enumerate(tree.parents))


def _drafted(tree: DraftTree, node: int) -> np.ndarray:
    """What a chain's node was drawn from, float64 [vocabulary]."""
    return tree.dists[node - 1]
