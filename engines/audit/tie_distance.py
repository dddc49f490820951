"""How far scores would have to move for another outcome: what tells rounding from a fault.

Noise of size d moves the difference of any two scores of a row by at most d. Here is the least d that explains what was
seen. Without filters that is a difference of two scores. Top-k and top-p add edges: a token may fall out or come in
because a score elsewhere moved, so a small d can explain a token that the filters rule out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engines.core.sampling import Sampling, softmax

_FARTHEST, _LEAST = 1e6, 2.0**-24
_ROUNDED = 1e-7


class ScoredRow:
    """One position, as the target sees it.

    Args:
        logits: float32 [vocabulary], divided by the temperature, before the filters.
        kept: bool [vocabulary], what the filters keep.
        sampling: the filters, top-k before top-p before min-p.
    """

    def __init__(self, logits: np.ndarray, kept: np.ndarray, sampling: Sampling) -> None:
        self._logits, self._kept = logits.astype(np.float64), kept
        filtered = not sampling.greedy and (
            sampling.top_p < 1 or 0 < sampling.top_k < len(logits) or sampling.min_p > 0
        )
        self._edges = _Edges(self._logits, kept, sampling) if filtered else None

    def to_choose(self, token: int, noise: np.ndarray | None) -> float:
        """The least d that makes ``token`` the kept one of largest logit + noise."""
        if not np.isfinite(self._logits[token]):  # it would repeat an n-gram
            return _FARTHEST
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
        if not np.isfinite(mine):
            return _FARTHEST
        return 0.0 if edges is None or self._kept[token] else _least(lambda d: mine > edges.entry(d), 1.0)

    def to_rate(self, token: int, prob: float) -> float:
        """The least d that gives ``token`` this probability."""
        wanted, edges, mine = _odds(prob), self._edges, self._logits[token]
        now = float(softmax(np.where(self._kept, self._logits, -np.inf))[token])
        direct = abs(_odds(now) - wanted)
        if edges is None:
            return direct

        def explains(d: float) -> bool:
            return edges.odds(mine, edges.most(d)) - d <= wanted <= edges.odds(mine, edges.fewest(d)) + d

        return _least(explains, direct)


class _Edges:
    """How many ranks the filters of a row keep, and the logits at the last of them, as noise can move them.

    Noise d adds 0..d to each logit. Then the value at each rank rises by 0..d: the odds of the best r against the rest,
    which top-p looks at, move by at most d. Top-k keeps k ranks and what ties with the last of them, so that the total
    over what it keeps counts k ranks at least, and at most all that is within d of the last of them.
    """

    def __init__(self, logits: np.ndarray, kept: np.ndarray, sampling: Sampling) -> None:
        self._depths = np.append(np.sort(-logits), np.inf)  # by rank, negative: rising
        weights = np.exp(self._depths[0] - self._depths[:-1])
        self._mass = np.concatenate([[0.0], weights.cumsum()])  # [r]: of the best r
        self._kept = int(kept.sum())
        self._k = sampling.top_k if 0 < sampling.top_k < len(logits) else len(logits)
        p = sampling.top_p  # keeps a token where what is likelier has less than this of the mass
        self._limit = float(np.log(p) - np.log1p(-p)) if p < 1 else np.inf
        self._span = -float(np.log(sampling.min_p)) if sampling.min_p > 0 else np.inf  # from the best to the last kept

    def fewest(self, d: float) -> int:
        """Ranks that are kept whatever noise d does."""
        return min(self._kept, self._ranks(self._k, self._limit - d), self._within(self._span - d))

    def most(self, d: float) -> int:
        """Ranks that noise d can make the filters keep."""
        tied = int(np.searchsorted(self._depths[:-1], self._depths[self._k - 1] + d, side="right"))
        return max(self._kept, min(self._ranks(tied, self._limit + d), self._within(self._span + d)))

    def _within(self, span: float) -> int:
        """How many of the best have logits at most this far from the very best."""
        return max(1, int(np.searchsorted(self._depths[:-1], self._depths[0] + span, side="right")))

    def _ranks(self, k: int, limit: float) -> int:
        """How many of the best k top-p keeps, where its share has these log odds."""
        if limit == np.inf:
            return k
        share = self._mass[k] * np.exp(-np.logaddexp(0.0, -limit))
        return min(k, max(1, int(np.searchsorted(self._mass, share))))

    def entry(self, d: float) -> float:
        """Noise d can make the filters keep what is above this logit: it passes all that is less than d above it."""
        return -self._depths[min(self.most(d), self._k) - 1] - d

    def exit(self, d: float) -> float:
        """Noise d can make the filters drop what is below this logit: all that is less than d below it passes it."""
        return -self._depths[self.fewest(d)] + d

    def odds(self, mine: float, count: int) -> float:
        """Log odds of a token of logit ``mine``, kept together with the best of the others, ``count`` in all."""
        weight = max(np.exp(mine + self._depths[0]), np.finfo(float).tiny)
        others = self._mass[count] - weight if -mine <= self._depths[count - 1] else self._mass[count - 1]
        return _odds(weight / (weight + max(others, 0.0)))


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
