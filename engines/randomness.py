"""Randomness that can be repeated: noise by (seed, position), random draws by seed; and the arithmetic of speculative
sampling, on distributions float64 [vocabulary]. Needs no torch."""

from __future__ import annotations

import numpy as np

_BELOW_ONE = np.float32(-1 + 2**-24)
_TOGETHER = 4  # positions whose noise is made at once: right after a forward, starting an operation is most of its cost
_SMALL = 1 << 15  # of vocabularies where that is so


class GumbelNoise:
    """Gumbel noise for every token at every position: g(seed, position), float32 [vocabulary].

    Counter-based (Philox with the seed as key and the position as counter), so a position's noise does not depend on
    what was asked before: target, draft model and every engine see the same (Daliri et al. 2024, coupled sampling).
    """

    def __init__(self, seed: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._bits = np.random.Philox(key=seed)
        self._state = self._bits.state
        self._together = _TOGETHER if vocab_size <= _SMALL else 1
        self._cache: dict[int, np.ndarray] = {}

    def at(self, position: int) -> np.ndarray:
        """The noise of a position (index of the token it decides, in the whole context)."""
        if position not in self._cache:
            if len(self._cache) > 64:
                self._cache.clear()
            first = position - position % self._together
            self._cache |= enumerate(self._make(range(first, first + self._together)), start=first)
        return self._cache[position]

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
        # -log(-log(1 - u)): log1p is precise for the small u that give the large noise that decides; the largest u
        # are rounded to 1 in float32, and kept below it, so that no token is ruled out
        np.maximum(x, _BELOW_ONE, out=x)
        np.log1p(x, out=x)
        np.negative(x, out=x)
        np.log(x, out=x)
        return np.negative(x, out=x)


class SeededRng:
    """The random draws of the rejection law and of drafters that sample for it. Tests replace it to enumerate.
    ``begun``: tokens of the answer that came before: their draws are not repeated for what follows them."""

    def __init__(self, seed: int, begun: int = 0) -> None:
        self._rng = np.random.Generator(np.random.Philox(key=seed, counter=[0, begun, 0, 0]))

    def accept(self, probability: float) -> tuple[float, bool]:
        """A uniform draw from [0, 1), and whether it is below ``probability``."""
        drawn = float(self._rng.random())
        return drawn, drawn < probability

    def draw(self, probs: np.ndarray) -> int:
        """A token from a distribution [vocabulary] (any positive total), by its cumulative sum."""
        cumulative = probs.cumsum()
        token = int(np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right"))
        if token >= len(probs) or probs[token] <= 0:  # rounding at the upper end
            token = int(np.flatnonzero(probs)[-1])
        return token


def bound(px: float, qx: float) -> float:
    """What the random draw must be below for a token to be accepted: ``min(1, p(x) / q(x))``."""
    return min(1.0, px / qx) if qx > 0 else 0.0


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """What a rejection leaves of p: ``norm(max(0, p - q))``; p itself where nothing is left."""
    return _normed(np.maximum(p - q, 0), p)


def without(p: np.ndarray, token: int) -> np.ndarray:
    """A distribution without one token; itself where nothing else is left."""
    rest = p.copy()
    rest[token] = 0
    return _normed(rest, p)


def _normed(rest: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """``rest`` scaled to total 1; ``otherwise`` where nothing is left (p equal to q up to rounding)."""
    total = rest.sum()
    return rest / total if total > 0 else otherwise
