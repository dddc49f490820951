"""A law decides which drafted tokens stay: what every law is asked, and the two that keep the target's distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from engines.core.sampling import Sampling, noted, softmax, to_cpu, to_numpy
from engines.core.tree import DraftTree, Trial
from engines.errors import finite
from engines.randomness import GumbelNoise, SeededRng, bound, residual, without

Tokens = np.ndarray | None
"""What a drafter's logits are of, int64 [n]; None: the first n tokens of the vocabulary."""

Suggestion = tuple[int, float, np.ndarray | None]
"""An index into logits [n], the drafter's belief in it, and what it was drawn from: float64 [n], None: not drawn."""


@dataclass(slots=True)
class Verdict:
    """A law's decision on a tree.

    Attributes:
        path: accepted nodes from the root down.
        tokens: what is emitted: the tokens of ``path``, then the target's own.
        rows: for each token the logits [vocabulary] after temperature and filters that it was chosen from, float32;
            empty where the forward noted its favourites, and nothing else is read of the logits.
        gaps: for each token the lead of the best score, where scores are compared that are not ``rows``; else empty.
        noise: for each token the Gumbel noise that went into its score; empty without noise.
        trials: for each token what was tried at its position; empty for laws that try nothing.
        bias: as in ``engines.report.events.Round``; None for lossless laws.
    """

    path: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    trials: list[tuple[Trial, ...]] = field(default_factory=list)
    bias: float | None = None


class Law(ABC):
    """What the loop and drafters ask of a law.

    Attributes:
        draws: a drafter may draw the nodes of a tree from distributions; the law tries them as they were drawn.
        wants_chains: it is made for chains that were drawn (``Drafter.draws_chains``), and for nothing else.
        compares: the emitted token is the one with the best score.
    """

    name: ClassVar[str]
    compares: ClassVar[bool] = False
    draws = False
    wants_chains = False

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling

    @abstractmethod
    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        """Decide on a tree, by logits [1 + nodes, vocabulary], row 0 the root's; ``position`` is the first emitted
        token's. Raises RunFailed where the model gave nan or infinity."""

    def noise(self, position: int) -> np.ndarray | None:
        """The noise [vocabulary] that is added to the logits at a position; None where none is."""
        return None

    def scores(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> torch.Tensor:
        """For drafters that rank: logits [rows, n] of n tokens, all for one position, as the target will compare its
        own; their softmax is the drafter's belief."""
        return self.sampling.warp(logits)

    @abstractmethod
    def suggest(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> Suggestion:
        """For drafters that write a chain: which of the tokens that the logits [n] are of comes next."""


class Exact(Law):
    """Coupled sampling (Daliri et al. 2024), greedy matching at temperature 0.

    The target's token at a position is ``argmax(warped logits + g(seed, position))``. Follow the draft while a child
    carries it, and emit it in any case: the text depends on prompt and seed only, never on the drafter.
    """

    name = "exact"
    compares = True

    def __init__(self, sampling: Sampling, seed: int, vocab_size: int) -> None:
        super().__init__(sampling)
        self._noise = GumbelNoise(seed, vocab_size)

    def noise(self, position: int) -> np.ndarray | None:
        return None if self.sampling.greedy else self._noise.at(position)

    def scores(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> torch.Tensor:
        warped, noise = self.sampling.warp(logits), self._noise_of(tokens, logits.shape[-1], position)
        return warped if noise is None else warped + torch.from_numpy(noise).to(logits.device)

    def suggest(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> Suggestion:
        if self.sampling.greedy and (found := noted(logits)) is not None:
            return *found.best(0), None
        scores, noise = self.sampling.row(to_numpy(logits)), self._noise_of(tokens, len(logits), position)
        scores = scores if noise is None else scores + noise
        best = int(scores.argmax())
        return best, float(1 / np.exp(scores - scores[best]).sum()), None

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        logits, verdict, node = to_cpu(logits), Verdict(), -1
        while node is not None:
            token = self._choose(logits, node + 1, position + len(verdict.path), verdict)
            verdict.tokens.append(token)
            below = tree.carrying(node, token) if tree.tokens else ()
            node = below[0] if below else None
            if len(below) > 1:
                node = max(below, key=lambda node: self._reach(tree, logits, node, position + len(verdict.tokens)))
            if node is not None:
                verdict.path.append(node)
        return verdict

    def _noise_of(self, tokens: Tokens, count: int, position: int) -> np.ndarray | None:
        noise = self.noise(position)
        return noise if noise is None else noise[:count] if tokens is None else noise[tokens]

    def _choose(self, logits: torch.Tensor, index: int, position: int, verdict: Verdict) -> int:
        """The token of largest score at a position, by a row of the logits. The verdict keeps the row, unless the
        forward noted its favourites, and above temperature 0 the token's noise and lead."""
        if self.sampling.greedy and (found := noted(logits)) is not None:
            return found.best(index)[0]
        row, noise = self.sampling.row(to_numpy(logits)[index]), self.noise(position)
        scores = row if noise is None else row + noise
        token = int(scores.argmax())
        score = finite(scores[token])
        verdict.rows.append(row)
        if noise is not None:
            scores[token] = -np.inf
            verdict.noise.append(noise.item(token))
            verdict.gaps.append(float(score - scores[scores.argmax()]) if len(scores) > 1 else 0.0)
        return token

    def _reach(self, tree: DraftTree, logits: torch.Tensor, node: int, position: int) -> int:
        """How many tokens are accepted from a node down, itself included. Duplicate siblings are one text: which of
        them is taken changes only how much of the draft is used."""
        token = self._choose(logits, node + 1, position, Verdict())
        below = (self._reach(tree, logits, child, position + 1) for child in tree.carrying(node, token))
        return 1 + max(below, default=0)


class Rejection(Law):
    """Speculative sampling (Leviathan et al. 2023, Chen et al. 2023), recursive over siblings.

    A drafted token x is accepted with ``min(1, p(x) / q(x))``, else the law goes on with ``norm(max(0, p - q))``: it
    tries the next sibling against that, and in the end draws from it. A draft without a distribution is a point mass.

    Siblings drawn independently (SpecInfer, Miao et al. 2024) share one q, and each draw is tried, repeats too: a
    repeat is never accepted, but its rejection takes q from p once more; leaving it out would bias the text. Siblings
    drawn without replacement (EAGLE, Li et al. 2024) are tried against q without the earlier ones.
    """

    name = "rejection"

    def __init__(self, sampling: Sampling, seed: int, rng: SeededRng | None = None) -> None:
        super().__init__(sampling)
        self.rng, self.draws = rng or SeededRng(seed), not sampling.greedy

    def suggest(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> Suggestion:
        row = self.sampling.row(to_numpy(logits))
        dist = self.sampling.probs(row)
        drawn = self.rng.draw(dist)
        return drawn, float((softmax(row) if self.sampling.greedy else dist)[drawn]), dist

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table, tries, verdict, node = to_numpy(logits), tree.tries(), Verdict(), -1
        while node is not None:
            row = self.sampling.row(table[node + 1])
            node, p, trials = self._try(tree, node, tries.get(node, ()), self.sampling.probs(row))
            verdict.rows.append(row)
            verdict.tokens.append(self.rng.draw(p) if node is None else tree.tokens[node])
            verdict.trials.append(trials)
            if node is not None:
                verdict.path.append(node)
        return verdict

    def _try(
        self, tree: DraftTree, parent: int, tried: Sequence[int], p: np.ndarray
    ) -> tuple[int | None, np.ndarray, tuple[Trial, ...]]:
        """Try what was drafted below a node: the accepted child or None, what is left of p, the trials."""
        q = tree.dists.get(parent) if tree.dists is not None else None
        trials = []
        for child in tried:
            token = tree.tokens[child]
            px, qx = float(p[token]), float(q[token]) if q is not None else 1.0
            drawn, accepted = self.rng.accept(bound(px, qx))
            trials.append(Trial(child, px, qx, drawn, accepted))
            if accepted:
                return child, p, tuple(trials)
            p = without(p, token) if q is None else residual(p, q)
            if q is not None and tree.distinct:
                q = without(q, token)
        return None, p, tuple(trials)
