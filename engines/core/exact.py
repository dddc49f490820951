"""Exact: coupled sampling (Daliri et al. 2024), greedy matching at temperature 0.

The target's token at a position is ``argmax(warped logits + g(seed, position))``; follow the draft while a child
carries it, and emit it in any case. The text depends on prompt and seed only, never on the drafter.
"""

from __future__ import annotations

import numpy as np
import torch

from engines.core.law import Law, Verdict
from engines.core.sampling import GumbelNoise, Sampling, to_numpy
from engines.core.tree import DraftTree


class Exact(Law):
    """The target's own token, fixed by (seed, position)."""

    name = "exact"

    def __init__(self, sampling: Sampling, seed: int, vocab_size: int) -> None:
        super().__init__(sampling)
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

    def choice(self, row: np.ndarray, position: int) -> tuple[int, float | None]:
        if self.sampling.greedy:
            return int(row.argmax()), None
        noise = self._noise.at(position)
        token = int((row + noise).argmax())
        return token, float(noise[token])

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table, verdict, node, greedy = to_numpy(logits), Verdict(), -1, self.sampling.greedy
        while node is not None:
            row = table[node + 1]
            if greedy:
                token = int(row.argmax())
            else:
                row = self.sampling.row(row)
                token = self._sample(row, position + len(verdict.path), verdict)
            verdict.saw(row, token)
            node = self._below(node, token, tree, table, position + len(verdict.tokens))
            if node is not None:
                verdict.path.append(node)
        verdict.looked()
        if greedy:
            verdict.gaps = [look.lead for look in verdict.looks]
        return verdict

    def _below(self, node: int, token: int, tree: DraftTree, table: np.ndarray, position: int) -> int | None:
        """The child that carries this token, below which ``position`` comes; None where there is none."""
        same = tree.carrying(node, token)
        if len(same) > 1:
            return self._furthest(same, tree, table, position)
        return same[0] if same else None

    def _furthest(self, same: list[int], tree: DraftTree, table: np.ndarray, position: int) -> int:
        """Of duplicate siblings, below whose token ``position`` comes, the one after which most is accepted; the first
        of equal ones. They are one text: what is emitted does not depend on the choice."""

        def reach(node: int, position: int) -> int:
            row = self.sampling.row(table[node + 1])
            token = int((row if self.sampling.greedy else row + self._noise.at(position)).argmax())
            return 1 + max((reach(child, position + 1) for child in tree.carrying(node, token)), default=0)

        return max(same, key=lambda node: reach(node, position))

    def _sample(self, row: np.ndarray, position: int, verdict: Verdict) -> int:
        """The token of largest score at a position, its noise and its lead noted."""
        noise = self._noise.at(position)
        scores = row + noise
        token = int(scores.argmax())
        score = scores[token]
        scores[token] = -np.inf
        verdict.noise.append(float(noise[token]))
        verdict.gaps.append(float(score - scores[scores.argmax()]) if len(scores) > 1 else 0.0)
        return token
