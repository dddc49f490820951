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

import torch

from engines.events import Trial
from engines.sampling import Dice, GumbelNoise, Sampling
from engines.tree import DraftTree


@dataclass(slots=True)
class Verdict:
    """A law's decision on a tree.

    Attributes:
        path: accepted nodes from the root down.
        tokens: what is emitted: the tokens of ``path``, then the target's own.
        gaps: for each token the difference of the two best scores compared, None where nothing was compared.
        noise: for each token the Gumbel noise that went into its score, None without noise.
        trials: for each token the throws made at its position.
    """

    path: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    gaps: list[float | None] = field(default_factory=list)
    noise: list[float | None] = field(default_factory=list)
    trials: list[tuple[Trial, ...]] = field(default_factory=list)


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

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, torch.Tensor | None]:
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
        return self.sampling.warp(logits) + self._noise.at(position).to(logits.device)

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, None]:
        scores = self.scores(logits[None], position)[0]
        best, token = scores.max(-1)
        return int(token), float((best - scores.logsumexp(-1)).exp()), None

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        # argmax, not topk's first: it decides ties as transformers' greedy search does
        greedy = logits.argmax(-1).tolist() if self.sampling.greedy else None
        children = tree.children()
        verdict, node = Verdict(), -1
        while True:
            if greedy is not None:
                token = greedy[node + 1]
            else:
                token = self._sample(logits[node + 1 : node + 2], position + len(verdict.path), verdict)
            verdict.tokens.append(token)
            verdict.trials.append(())
            node = next((c for c in children.get(node, ()) if tree.tokens[c] == token), None)
            if node is None:
                break
            verdict.path.append(node)
        if greedy is not None:
            rows = [0, *(n + 1 for n in verdict.path)]
            values = logits[rows].float().topk(min(2, logits.shape[-1]), -1).values
            verdict.gaps = (values[:, 0] - values[:, -1]).tolist()
            verdict.noise = [None] * len(rows)
        return verdict

    def _sample(self, logits: torch.Tensor, position: int, verdict: Verdict) -> int:
        values, tokens = self.scores(logits, position)[0].topk(min(2, logits.shape[-1]))
        token = int(tokens[0])
        verdict.gaps.append(float(values[0] - values[-1]))
        verdict.noise.append(float(self._noise.at(position)[token]))
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

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, torch.Tensor]:
        dist = self.sampling.probs(logits[None])[0]
        token = self.dice.draw(dist)
        belief = logits.float().softmax(-1) if self.sampling.greedy else dist
        return token, float(belief[token]), dist

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        children = tree.children()
        verdict, node = Verdict(), -1
        while True:
            p = self.sampling.probs(logits[node + 1 : node + 2])[0]
            node, p, trials = self._try(tree, children.get(node, []), p)
            token = self.dice.draw(p) if node is None else tree.tokens[node]
            verdict.tokens.append(token)
            verdict.gaps.append(None)
            verdict.noise.append(None)
            verdict.trials.append(trials)
            if node is None:
                return verdict
            verdict.path.append(node)

    def _try(
        self, tree: DraftTree, children: list[int], p: torch.Tensor
    ) -> tuple[int | None, torch.Tensor, tuple[Trial, ...]]:
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


def _residual(p: torch.Tensor, q: torch.Tensor | None, token: int) -> torch.Tensor:
    """norm(max(0, p - q)); p itself where nothing is left (p equal to q up to rounding)."""
    if q is None:
        rest = p.clone()
        rest[token] = 0
    else:
        rest = (p - q).clamp_(min=0)
    total = rest.sum()
    return rest / total if float(total) > 0 else p


def make_law(name: str, sampling: Sampling, seed: int, vocab_size: int) -> Law:
    """The law with this name ("exact" or "rejection")."""
    return Exact(sampling, seed, vocab_size) if name == "exact" else Rejection(sampling, seed)
