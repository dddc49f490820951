"""How far scores would have to move for another outcome: what tells rounding from a fault.

Noise of size d moves the difference of any two scores of a row by at most d. Here is the least d that explains what was
seen. Without filters that is a difference of two scores. Top-k and top-p add edges: a token may fall out or come in
because a score elsewhere moved, so a small d can explain a token that the filters rule out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engines.sampling import Sampling, softmax

_FARTHEST, _LEAST = 1e6, 2.0**-24
_ROUNDED = 1e-7


class Row:
    """One position, as the target sees it.

    Args:
        logits: float32 [vocabulary], divided by the temperature, before the filters.
        kept: bool [vocabulary], what the filters keep.
        sampling: the filters, top-k before top-p.
    """

    def __init__(self, logits: np.ndarray, kept: np.ndarray, sampling: Sampling) -> None:
        self._logits, self._kept = logits.astype(np.float64), kept
        filtered = not sampling.greedy and (sampling.top_p < 1 or 0 < sampling.top_k < len(logits))
        self._edges = _Edges(self._logits, kept, sampling) if filtered else None

    def to_choose(self, token: int, noise: np.ndarray | None) -> float:
        """The least d that makes ``token`` the kept one of largest logit + noise."""
        scores = self._logits if noise is None else self._logits + noise
        leads = scores - scores[token]
        rivals = np.flatnonzero(self._kept & (leads > 0))
        leads, edges = leads[rivals], self._edges
        farthest = float(leads.max(initial=0.0))
        if edges is None:
            return farthest
        mine, theirs, stays = self._logits[token], self._logits[rivals], bool(self._kept[token])

        def explains(d: float) -> bool:
            return (stays or mine > edges.entry(d)) and bool(((leads <= d) | (theirs < edges.exit(d))).all())

        return _least(explains, farthest)

    def to_keep(self, token: int) -> float:
        """The least d that makes the filters keep ``token``."""
        edges, mine = self._edges, self._logits[token]
        return 0.0 if edges is None or self._kept[token] else _least(lambda d: mine > edges.entry(d), 1.0)

    def to_rate(self, token: int, prob: float) -> float:
        """The least d that gives ``token`` this probability."""
        wanted, edges, mine = _odds(prob), self._edges, self._logits[token]
        now = float(softmax(np.where(self._kept, self._logits, -np.inf))[token])
        direct = abs(_odds(now) - wanted)
        if edges is None:
            return direct

        def explains(d: float) -> bool:
            return edges.odds(mine, edges.entry(d)) - d <= wanted <= edges.odds(mine, edges.exit(d)) + d

        return _least(explains, direct)


class _Edges:
    """Where the filters of a row begin to keep tokens, by logit, and where noise can move that to."""

    def __init__(self, logits: np.ndarray, kept: np.ndarray, sampling: Sampling) -> None:
        self._all = np.sort(logits)
        weights = np.exp(self._all - self._all[-1])
        self._mass = np.concatenate([weights[::-1].cumsum()[::-1], [0.0]])  # [i]: of all but the i lowest
        self._lowest = np.searchsorted(self._all, logits[kept].min())
        k = sampling.top_k if 0 < sampling.top_k < len(logits) else len(logits)
        self._next = self._all[-k - 1] if k < len(logits) else -np.inf
        self._first = int(np.searchsorted(self._all, self._all[-k]))  # of what top-k keeps
        self._total = self._mass[self._first]
        p = sampling.top_p  # keeps a token where what is likelier has less than this of the mass
        self._limit = float(np.log(p) - np.log1p(-p)) if p < 1 else np.inf
        self._crowd = -self._log_odds(self._mass[self._first : -1], 0.0)  # of all from each token up, negative: rising

    def _log_odds(self, mass: np.ndarray, rest: np.ndarray | float) -> np.ndarray:
        """Of a mass against the rest of what top-k keeps, which is at least ``rest``."""
        return _log(mass) - _log(np.maximum(self._total - mass, rest))

    def entry(self, d: float) -> float:
        """Noise d can make the filters keep what is above this logit: it rises, the others fall."""
        crowded = int(np.searchsorted(self._crowd, -(self._limit + d)))  # levels with too much mass from there up
        level = self._all[self._first + crowded - 1] if crowded else np.nextafter(self._all[self._first], -np.inf)
        return min(level - d, np.nextafter(self._all[self._lowest], -np.inf))

    def exit(self, d: float) -> float:
        """Noise d can make the filters drop what is below this logit: it falls, the others rise."""
        values = self._all[self._lowest :]
        weights = np.exp(values - self._all[-1])
        over = self._mass[np.searchsorted(self._all, values - d, side="right")] - weights
        odds = self._log_odds(np.clip(over, 0, self._total), weights)
        stay = int(((values - d < self._next) | (odds + d >= self._limit)).sum())
        return values[stay] if stay < len(values) else np.inf

    def odds(self, mine: float, lowest: float) -> float:
        """Log odds of a token of logit ``mine`` where all others from ``lowest`` up are kept."""
        weight = np.exp(mine - self._all[-1])
        others = self._mass[np.searchsorted(self._all, lowest)] - (weight if mine >= lowest else 0.0)
        return float(_log(weight) - _log(max(others, 0.0)))


def _least(explains: Callable[[float], bool], guess: float) -> float:
    """The least d for which this is true, to a few per cent; it stays true for every larger one. At most
    ``_FARTHEST``."""
    high = max(guess, _LEAST)
    while not explains(high):
        high *= 2
        if high > _FARTHEST:
            return _FARTHEST
    while explains(high / 2):
        high /= 2
        if high < _LEAST:
            return 0.0
    low = high / 2
    while high - low > 0.02 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if explains(middle) else (middle, high)
    return high


def _odds(prob: float) -> float:
    """Log odds of a probability that comes from float32 sums."""
    prob = min(max(prob, _ROUNDED), 1 - _ROUNDED)
    return float(np.log(prob) - np.log1p(-prob))


def _log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)
