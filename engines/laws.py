"""Laws: who decides which drafted tokens stay. Both walk down from the root and are lossless.

Exact (coupled sampling, Daliri et al. 2024; greedy matching at temperature 0): the target's token at a position is
``argmax(warped logits + g(seed, position))``; follow the draft while a child carries it, and emit it in any case. The
text depends on prompt and seed only, never on the drafter.

Rejection (Leviathan et al. 2023, Chen et al. 2023): accept a drafted token x with ``min(1, p(x) / q(x))``, else go on
with ``norm(max(0, p - q))``. A draft without a distribution is a point mass, q = 1 at its token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from engines.events import Trial
from engines.sampling import Dice, GumbelNoise, Sampling, best, softmax, to_numpy
from engines.tree import DraftTree

TOP = 3  # of the target's favourites at a position, how many are kept for display


@dataclass(slots=True)
class Verdict:
    """A law's decision on a tree.

    Attributes:
        path: accepted nodes from the root down.
        tokens: what is emitted: the tokens of ``path``, then the target's own.
        rows: for each token the logits [vocabulary] after temperature and filters that it was chosen from.
        tops: for each token the ids of the ``TOP`` largest entries of its row, largest first.
        gaps: for each token the difference of the two best scores compared; empty where nothing was compared.
        noise: for each token the Gumbel noise that went into its score; empty without noise.
        trials: for each token the throws made at its position; empty without dice.
    """

    path: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    tops: list[list[int]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    trials: list[tuple[Trial, ...]] = field(default_factory=list)

    def saw(self, row: np.ndarray, tops: list[int], token: int) -> None:
        """Note a visited row and the token chosen there."""
        self.rows.append(row)
        self.tops.append(tops)
        self.tokens.append(token)


class Law(Protocol):
    """What the loop and drafters ask of a law."""

    name: str
    lossless: bool
    sampling: Sampling

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        """Decide. ``logits`` [1 + nodes, vocabulary], row 0 the root's; ``position`` of the first token emitted."""

    def scores(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """For drafters that rank: logits [rows, vocabulary], all for one position, made comparable to what the target
        will compare; softmax of them is the drafter's belief."""

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, np.ndarray | None]:
        """For drafters that sample: token, the drafter's belief in it, and the distribution it was drawn from
        (float64 [vocabulary], None where the law needs none), from logits [vocabulary]."""


class Exact:
    """The target's own token, fixed by (seed, position)."""

    name = "exact"
    lossless = True

    def __init__(self, sampling: Sampling, seed: int, vocab_size: int) -> None:
        self.sampling = sampling
        self._noise = GumbelNoise(seed, vocab_size)

    def scores(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """Logits at temperature 0, else warped logits + shared noise."""
        if self.sampling.greedy:
            return logits.float()
        return self.sampling.warp(logits) + torch.from_numpy(self._noise.at(position)).to(logits.device)

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, None]:
        row = self.sampling.row(to_numpy(logits))
        scores = row if self.sampling.greedy else row + self._noise.at(position)
        token = int(scores.argmax())
        return token, float(1 / np.exp(scores - scores[token]).sum()), None

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table, children, verdict, node = to_numpy(logits), tree.children(), Verdict(), -1
        while True:
            row = self.sampling.row(table[node + 1])
            tops = best(row, TOP)
            if self.sampling.greedy:
                token = tops[0]
                verdict.gaps.append(float(row[token] - row[tops[min(1, len(tops) - 1)]]))
            else:
                token = self._sample(row, position + len(verdict.path), verdict)
            verdict.saw(row, tops, token)
            node = next((c for c in children.get(node, ()) if tree.tokens[c] == token), None)
            if node is None:
                return verdict
            verdict.path.append(node)

    def _sample(self, row: np.ndarray, position: int, verdict: Verdict) -> int:
        """The token of largest score at a position, its noise and its lead noted."""
        noise = self._noise.at(position)
        scores = row + noise
        token = int(scores.argmax())
        score = scores[token]
        scores[token] = -np.inf
        verdict.noise.append(float(noise[token]))
        verdict.gaps.append(float(score - scores.max()) if len(scores) > 1 else 0.0)
        return token


class Rejection:
    """Speculative sampling with dice: the distribution is the target's, the text depends on the drafter too."""

    name = "rejection"
    lossless = True

    def __init__(self, sampling: Sampling, seed: int, dice: Dice | None = None) -> None:
        self.sampling = sampling
        self.dice = dice or Dice(seed)

    def scores(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """Warped logits: what the drafter believes, without dice (a tree's nodes are point masses)."""
        return self.sampling.warp(logits)

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, np.ndarray]:
        row = self.sampling.row(to_numpy(logits))
        dist = self.sampling.probs(row)
        token = self.dice.draw(dist)
        belief = softmax(row) if self.sampling.greedy else dist
        return token, float(belief[token]), dist

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table, children, verdict, node = to_numpy(logits), tree.children(), Verdict(), -1
        while True:
            row = self.sampling.row(table[node + 1])
            node, p, trials = self._try(tree, children.get(node, []), self.sampling.probs(row))
            verdict.saw(row, best(row, TOP), self.dice.draw(p) if node is None else tree.tokens[node])
            verdict.trials.append(trials)
            if node is None:
                return verdict
            verdict.path.append(node)

    def _try(
        self, tree: DraftTree, children: list[int], p: np.ndarray
    ) -> tuple[int | None, np.ndarray, tuple[Trial, ...]]:
        """Try siblings in order: the accepted one or None, the residual distribution, the throws."""
        trials = []
        for child in children:
            token = tree.tokens[child]
            q = tree.dists[child] if tree.dists is not None else None
            px, qx = float(p[token]), float(q[token]) if q is not None else 1.0
            throw, accepted = self.dice.accept(min(1.0, px / qx) if qx > 0 else 0.0)
            trials.append(Trial(child, px, qx, throw, accepted))
            if accepted:
                return child, p, tuple(trials)
            p = _residual(p, q, token)
        return None, p, tuple(trials)


def _residual(p: np.ndarray, q: np.ndarray | None, token: int) -> np.ndarray:
    """norm(max(0, p - q)); p itself where nothing is left (p equal to q up to rounding)."""
    if q is None:
        rest = p.copy()
        rest[token] = 0
    else:
        rest = np.maximum(p - q, 0)
    total = rest.sum()
    return rest / total if total > 0 else p


def make_law(name: str, sampling: Sampling, seed: int, vocab_size: int) -> Law:
    """The law with this name ("exact" or "rejection")."""
    return Exact(sampling, seed, vocab_size) if name == "exact" else Rejection(sampling, seed)
