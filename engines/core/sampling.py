"""How logits become a distribution: temperature, top-k, top-p, min-p."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from engines.errors import finite


@dataclass(frozen=True)
class Sampling:
    """How logits become a distribution. Temperature 0 is greedy: filters then change nothing and are left out."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @cached_property
    def _filters(self):
        from engines.libraries import hf

        return [] if self.greedy else hf.filters(self.top_k, self.top_p, self.min_p)

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] after temperature and filters, float32; -inf where filtered out."""
        warped = logits.float() if self.greedy or self.temperature == 1 else logits.float() / self.temperature
        for warper in self._filters:
            warped = warper(None, warped)
        return warped

    def row(self, logits: np.ndarray) -> np.ndarray:
        """The same for one row [vocabulary]."""
        if self.greedy:
            return logits
        if self._filters:
            return self.warp(torch.from_numpy(logits)[None])[0].numpy()
        return logits if self.temperature == 1 else logits / np.float32(self.temperature)

    def probs(self, row: np.ndarray) -> np.ndarray:
        """The distribution tokens are drawn from, given a warped row: float64 [vocabulary]; one-hot when greedy."""
        if not self.greedy:
            return softmax(row)
        probs, token = np.zeros(len(row)), row.argmax()
        finite(row.item(token))
        probs[token] = 1
        return probs


def to_cpu(logits: torch.Tensor) -> torch.Tensor:
    """Logits of any shape as float32 on the CPU."""
    return logits if logits.is_cpu and logits.dtype is torch.float32 else logits.float().cpu()


def to_numpy(logits: torch.Tensor) -> np.ndarray:
    """The same for numpy, whose operations on few rows cost a fraction of torch's."""
    return to_cpu(logits).numpy()


def noted(logits: torch.Tensor):
    """The ``Favourites`` of these logits, [rows, vocabulary] or [vocabulary]; None where their forward noted none."""
    return getattr(logits, "favourites", None)


def softmax(row: np.ndarray) -> np.ndarray:
    """float64 probabilities of a row of logits [vocabulary]. Raises RunFailed where the largest is not finite."""
    weights = np.exp(row - finite(row.max().item()), dtype=np.float64)
    return weights / weights.sum()
