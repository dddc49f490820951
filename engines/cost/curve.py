"""The price of verification: t(n), the time of a forward over n rows, and what a round must yield to be worth it."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

Points = tuple[tuple[int, float], ...]
"""(rows, seconds), rows ascending."""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """t(n) through measured points: straight lines between them, the last slope beyond them. ``points``: (rows,
    seconds), rows ascending from 1, seconds never falling. Of several requests (``of_requests``) rows are those of
    each, and may be fractions. ``busy``: it was measured on a machine that was not known to be quiet."""

    points: Points
    busy: bool = False

    @classmethod
    def fit(cls, samples: Iterable[tuple[int, float]]) -> CostCurve:
        """The curve nearest to measured (rows, seconds) that never falls (pool adjacent violators): a forward over more
        rows is not cheaper, whatever one noisy sample says. Raises ValueError: no samples, two for the same rows, or
        one that is not positive and finite."""
        pools: list[tuple[list[int], float]] = []
        before = 0
        for rows, seconds in sorted(samples):
            if rows <= before or not 0 < seconds < math.inf:
                raise ValueError(f"no cost: {rows} rows in {seconds} s")
            before = rows
            pools.append(([rows], seconds))
            while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
                (low, a), (high, b) = pools[-2:]
                pools[-2:] = [(low + high, (a * len(low) + b * len(high)) / (len(low) + len(high)))]
        if not pools:
            raise ValueError("no samples")
        return cls(tuple((row, seconds) for rows, seconds in pools for row in rows))

    def at(self, rows: float) -> float:
        """Seconds of a forward over this many rows."""
        points = self.points
        if rows <= points[0][0] or len(points) == 1:
            return points[0][1]
        i = min(bisect_left(points, (rows,)), len(points) - 1)
        (x0, y0), (x1, y1) = points[i - 1], points[i]
        return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)

    def scaled(self, factor: float) -> CostCurve:
        """The curve of a machine on which every pass takes ``factor`` times as long."""
        return replace(self, points=tuple((rows, factor * seconds) for rows, seconds in self.points))

    def of_requests(self, count: int, beside: float = 0.0) -> CostCurve:
        """t of a pass that serves several requests at once, over the rows of each: ``count`` requests with n rows each
        take t(count * n). ``beside``: seconds that such a pass takes longer whatever its rows are: what reading the
        keys and values of further or longer contexts takes."""
        points = [(1, self.at(count))]
        points += [(rows / count, seconds) for rows, seconds in self.points if rows > count]
        last = points[-1][0] + 1  # the slope beyond what was measured stays
        points += [(last, self.at(last * count))] if len(self.points) > 1 else []
        return CostCurve(tuple((rows, seconds + beside) for rows, seconds in points))


def best_length(survival: Sequence[float], seconds: Sequence[float], least: int = 0) -> int:
    """How many tokens to draft for the most expected tokens a second.

    Args:
        survival: at index d - 1 the probability that the d-th token is accepted, with all it hangs on.
        seconds: at index n the time of a round that drafts n tokens, drafting and verification;
            ``len(survival) + 1`` of them.
        least: tokens drafted already.

    Returns:
        n in least..len(survival), the smallest of equals. The expected tokens of a round are
        1 + survival[0] + ... + survival[n - 1]: those accepted, and the target's own.
    """
    expected = 1.0 + sum(survival[:least])
    best, best_rate = least, expected / seconds[least]
    for n, alive in enumerate(survival[least:], start=least + 1):
        expected += alive
        if expected / seconds[n] > best_rate:
            best, best_rate = n, expected / seconds[n]
    return best


def best_rate(survival: Sequence[float], seconds: Sequence[float]) -> float:
    """Expected tokens a second of a round of the best length; arguments as of ``best_length``."""
    length = best_length(survival, seconds)
    return (1 + sum(survival[:length])) / seconds[length]


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Whether rounds of a run are faster than without drafts.

    Attributes:
        needs: tokens a round must yield to be as fast as autoregressive decoding: its time over that of one token.
        makes: tokens a round did yield (the mean generated length).
    """

    needs: float
    makes: float

    @property
    def speed_up(self) -> float:
        """What the two imply: tokens a second over those of autoregressive decoding."""
        return self.makes / self.needs
