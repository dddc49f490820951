"""Temperature, top-k and top-p, and randomness that can be repeated: noise keyed by (seed, position), dice by seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from engines.errors import RunFailed

_BELOW_ONE = np.float32(-1 + 2**-24)
_TOGETHER = 4  # positions whose noise is made at once: right after a forward, starting an operation is most of its cost
_SMALL = 1 << 15  # of vocabularies where that is so


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
    def _filters(self):
        from transformers import TopKLogitsWarper, TopPLogitsWarper

        filters = [TopKLogitsWarper(self.top_k)] if self.top_k and not self.greedy else []
        return [*filters, TopPLogitsWarper(self.top_p)] if self.top_p < 1 and not self.greedy else filters

    def warp(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits [rows, vocabulary] after temperature and filters, float32; -inf where filtered out."""
        warped = logits.float() if self.greedy or self.temperature == 1 else logits.float() / self.temperature
        for warper in self._filters:
            warped = warper(None, warped)
        return warped

    def row(self, logits: np.ndarray) -> np.ndarray:
        """The same for one row [vocabulary]."""
        if self._filters:
            return self.warp(torch.from_numpy(logits)[None])[0].numpy()
        return logits if self._heat is None else logits / self._heat

    @cached_property
    def _heat(self) -> np.float32 | None:
        return None if self.greedy or self.temperature == 1 else np.float32(self.temperature)

    def probs(self, row: np.ndarray) -> np.ndarray:
        """The distribution tokens are drawn from, given a warped row: float64 [vocabulary]; one-hot when greedy."""
        if not self.greedy:
            return softmax(row)
        probs = np.zeros(len(row))
        probs[row.argmax()] = 1
        return probs


def to_numpy(logits: torch.Tensor) -> np.ndarray:
    """Logits of any shape as float32 on the CPU, in one transfer. The loop looks at few rows, right after a forward has
    emptied the processor's caches: numpy's operations then cost a fraction of torch's."""
    if not logits.is_cpu or logits.dtype is not torch.float32:
        logits = logits.float().cpu()
    return logits.numpy()


def softmax(row: np.ndarray) -> np.ndarray:
    """float64 probabilities of a row of logits [vocabulary]."""
    weights = np.exp(row - row.max(), dtype=np.float64)
    return weights / weights.sum()


@dataclass(slots=True)
class RowSummary:
    """What a row of logits says.

    Attributes:
        prob: the probability of the token that was asked for.
        tops: ids and probabilities of the likeliest tokens, the best first, the lower id first among equals; none that
            is filtered out.
        lead: the difference of the two largest logits, in float32; 0 where there is one only.
    """

    prob: float
    tops: list[tuple[int, float]]
    lead: float


def summarise(rows: Sequence[np.ndarray], tokens: Sequence[int], k: int) -> list[RowSummary]:
    """What rows say, all of them in one go.

    Args:
        rows: float32 [vocabulary] each, after temperature and filters, writable; in the end they are as they were.
        tokens: one a row, whose probability is asked for.
        k: how many of the likeliest.

    Raises:
        RunFailed: the largest entry of a row is nan or infinite.
    """
    table = np.empty((len(rows), len(rows[0])), np.float32)
    tops, below = [], []
    for row, token, shifted in zip(rows, tokens, table):
        ids = _largest(row, max(k, 2))
        if not ids or not math.isfinite(row.item(ids[0])):
            raise RunFailed("the model's logits are not numbers", "the dtype is too narrow for it: use --dtype float32")
        np.subtract(row, row[ids[0]], out=shifted)
        tops.append(ids)
        below.append([shifted.item(t) for t in (token, *ids)])
    np.exp(table, out=table)
    looks = []
    for (own, *rest), ids, total in zip(below, tops, np.add.reduce(table, axis=1).tolist()):
        lead = 0.0 - rest[1] if len(rest) > 1 else math.inf if table.shape[1] > 1 else 0.0
        looks.append(RowSummary(math.exp(own) / total, [(t, math.exp(d) / total) for t, d in zip(ids[:k], rest)], lead))
    return looks


def _largest(row: np.ndarray, k: int) -> list[int]:
    """The ids of the ``k`` largest entries above minus infinity, largest first, the lower id first among equals. The
    row is written to on the way, and restored."""
    found: dict[int, float] = {}
    for _ in range(min(k, len(row))):
        token = int(row.argmax())
        value = row.item(token)
        if value == -math.inf:  # all the others are filtered out
            break
        found[token] = value
        row[token] = -math.inf
    for token, value in found.items():
        row[token] = value
    return list(found)


class GumbelNoise:
    """Gumbel noise for every token at every position: g(seed, position), float32 [vocabulary].

    Counter-based (Philox with the seed as key and the position as counter), so a position's noise does not depend on
    what was asked before: target, draft model and every engine see the same (Daliri et al. 2024, coupled sampling).
    """

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.seed, self.vocab_size = seed, vocab_size
        self._bits = np.random.Philox(key=seed)
        self._state = self._bits.state
        self._together = _TOGETHER if vocab_size <= _SMALL else 1
        self._cache: dict[int, np.ndarray] = {}

    def at(self, position: int) -> np.ndarray:
        """The noise of a position (index of the token it decides, in the whole context)."""
        noise = self._cache.get(position)
        if noise is None:
            if len(self._cache) > 64:
                self._cache.clear()
            first = position - position % self._together
            self._cache |= enumerate(self._make(range(first, first + self._together)), start=first)
            noise = self._cache[position]
        return noise

    def _make(self, positions: range) -> np.ndarray:
        """The noise of these positions, float32 [positions, vocabulary]."""
        raw = np.empty((len(positions), (self.vocab_size + 1) // 2), np.uint64)
        for row, position in zip(raw, positions):
            self._state["state"]["counter"][:] = 0, position, 0, 0
            self._bits.state = self._state
            row[:] = self._bits.random_raw(len(row))
        x = raw.view(np.uint32)[:, : self.vocab_size].astype(np.float32, order="C")
        x += np.float32(0.5)
        x *= np.float32(-(2.0**-32))
        # -log(-log(1 - u)): log1p keeps the precision where it counts, small u give the large noise that decides; the
        # largest u are rounded to 1 in float32, and stay below it, so that no token is ruled out
        np.maximum(x, _BELOW_ONE, out=x)
        np.log1p(x, out=x)
        np.negative(x, out=x)
        np.log(x, out=x)
        return np.negative(x, out=x)


class SeededRng:
    """The random decisions of the rejection law and of drafters that sample for it. Tests replace it to enumerate.

    Args:
        begun: tokens of the answer that came before: their dice are not thrown again for what follows them.
    """

    def __init__(self, seed: int, begun: int = 0) -> None:
        self._rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, begun, 0, 0]))

    def accept(self, probability: float) -> tuple[float, bool]:
        """A throw in [0, 1) and whether it is below ``probability``."""
        throw = float(self._rng.random())
        return throw, throw < probability

    def draw(self, probs: np.ndarray) -> int:
        """A token from a distribution [vocabulary] (any positive total), by its cumulative sum."""
        cumulative = probs.cumsum()
        token = int(np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right"))
        if token >= len(probs) or probs[token] <= 0:  # rounding at the upper end
            token = int(np.flatnonzero(probs)[-1])
        return token
