"""Medians with intervals that need no assumption about how timings scatter."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

METHOD = "order statistics of the median"
WANTED = 0.95


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median and how well it is known.

    Attributes:
        low, high: confidence interval of the median: two of the samples, chosen by order alone (the inversion of the
            sign test). None for a single sample.
        coverage: how surely the interval holds the true median: at least 0.95 from six samples on. Fewer cannot say so;
            then the interval is their range, with the coverage that this has (0.94 for five, 0.75 for three).
    """

    median: float
    low: float | None
    high: float | None
    coverage: float | None
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> MedianInterval | None:
        """The estimate of these samples; None without any."""
        ordered = sorted(samples)
        n = len(ordered)
        if n == 0:
            return None
        middle = statistics.median(ordered)
        if n == 1:
            return cls(middle, None, None, None, 1)
        out = max((k for k in range(n // 2) if _coverage(n, k) >= WANTED), default=0)
        return cls(middle, ordered[out], ordered[n - 1 - out], _coverage(n, out), n)


def _coverage(n: int, out: int) -> float:
    """The chance that the median lies between the samples that leave ``out`` of ``n`` on either side: it lies outside
    where at most ``out`` fair coins of n show the same side."""
    return 1 - 2 * sum(comb(n, i) for i in range(out + 1)) / 2**n
