"""Temperature, top-k and top-p, and randomness that can be repeated: noise keyed by (seed, position), dice by seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch


@dataclass(frozen=True)
class Sampling:
    """How logits become a distribution. Temperature 0 is greedy: filters then change nothing and are left out."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @cached_property
    def _warpers(self):
        from transformers import (
            LogitsProcessorList,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
            TopPLogitsWarper,
        )

        warpers = LogitsProcessorList()
        if not self.greedy and self.temperature != 1:
            warpers.append(TemperatureLogitsWarper(float(self.temperature)))
        if not self.greedy and self.top_k:
            warpers.append(TopKLogitsWarper(self.top_k))
        if not self.greedy and self.top_p < 1:
            warpers.append(TopPLogitsWarper(self.top_p))
        return warpers

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] after temperature and filters, float32; -inf where filtered out."""
        return self._warpers(None, logits.float())

    def probs(self, logits: torch.Tensor) -> torch.Tensor:
        """The distribution tokens are drawn from, float64 [rows, vocabulary]; one-hot at temperature 0."""
        if self.greedy:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros(logits.shape, dtype=torch.float64, device=logits.device).scatter_(-1, best, 1.0)
        return self.warp(logits).double().softmax(-1)


class GumbelNoise:
    """Gumbel noise for every token at every position: g(seed, position), float32 [vocabulary] on the CPU.

    Counter-based (Philox with the seed as key and the position as counter), so a position's noise does not depend on
    what was asked before: target, draft model and every engine see the same (Daliri et al. 2024, coupled sampling).
    """

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.seed, self.vocab_size = seed, vocab_size
        self._cache: dict[int, torch.Tensor] = {}

    def at(self, position: int) -> torch.Tensor:
        """The noise of a position (index of the token it decides, in the whole context)."""
        noise = self._cache.get(position)
        if noise is None:
            if len(self._cache) > 64:
                self._cache.clear()
            noise = self._cache[position] = self._make(position)
        return noise

    def _make(self, position: int) -> torch.Tensor:
        bits = np.random.Philox(key=self.seed, counter=[0, position, 0, 0])
        raw = bits.random_raw((self.vocab_size + 1) // 2).view(np.uint32)[: self.vocab_size]
        uniform = (raw.astype(np.float64) + 0.5) * 2.0**-32
        return torch.from_numpy(-np.log(-np.log(uniform)).astype(np.float32))


class Dice:
    """The random decisions of the rejection law and of drafters that sample for it. Tests replace it to enumerate."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.Generator(np.random.Philox(key=seed))

    def accept(self, probability: float) -> tuple[float, bool]:
        """A throw in [0, 1) and whether it is below ``probability``."""
        throw = float(self._rng.random())
        return throw, throw < probability

    def draw(self, probs: torch.Tensor) -> int:
        """A token from a distribution [vocabulary] (any positive total), by its cumulative sum."""
        cumulative = probs.double().cumsum(-1)
        point = torch.tensor(self._rng.random() * float(cumulative[-1]), dtype=torch.float64, device=probs.device)
        token = int(torch.searchsorted(cumulative, point, right=True))
        if token >= len(probs) or probs[token] <= 0:  # rounding at the upper end
            token = int(probs.nonzero()[-1])
        return token
