"""Medians of repeats, with intervals that hold the true median with 95% or more, however few the repeats are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from math import comb, exp, log, log1p

LEAST_NOISE = 0.03  # of a speed or a ratio: a few runs on one machine, and single ones, repeat no better
WANTED = 0.95
ENOUGH = 6  # samples from which order statistics cover the median with WANTED
METHOD = (f"{WANTED:.0%} or more, by order statistics of the median; of fewer than {ENOUGH} repeats by Student's t of "
          f"the logarithms, at least {LEAST_NOISE:.0%}")

_STUDENT = (  # 97.5% quantiles by degrees of freedom
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11,
)
_BEYOND = 2.10  # of 18; of more it is less, down to 1.96


def student(freedom: int) -> float:
    """Student's quantile for 95% to both sides; beyond 18 degrees of freedom that of 18, which is too wide by 7% at
    most."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _BEYOND


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median and how well it is known.

    From six samples on the interval is two of them, chosen by order alone (the inversion of the sign test), which
    assumes nothing about how timings scatter. Fewer cannot reach 95% that way: the range of two holds the median half
    of the time. Their interval is Student's, of the logarithms, and at least ``LEAST_NOISE`` to either side, since two
    or three timings can agree by chance. It assumes normal noise, and is too wide, not too narrow, where runs are now
    and then much slower. Two equal lanes with 5% noise in their ratio are judged to differ in 1% to 4% of races with 2
    to 12 repeats, also where one run in ten takes 1.5 times as long (tests/race/test_false_verdicts.py).

    Attributes:
        low, high: confidence interval of the median. None for a single sample.
        coverage: how surely the interval holds the true median: 0.95 or more. None for a single sample.
    """

    median: float
    low: float | None
    high: float | None
    coverage: float | None
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> MedianInterval | None:
        """The estimate of these samples; None without any. Raises ValueError: of two to five, one is not above 0."""
        ordered = sorted(samples)
        n = len(ordered)
        if n == 0:
            return None
        middle = statistics.median(ordered)
        if n == 1:
            return cls(middle, None, None, None, 1)
        if n < ENOUGH:
            return cls(middle, *_of_few(ordered), WANTED, n)
        out, coverage = _left_out(n)
        return cls(middle, ordered[out], ordered[n - 1 - out], coverage, n)


def ratio_of(mine: Mapping[int, float], theirs: Mapping[int, float]) -> MedianInterval | None:
    """The estimate of the ratios within the same repeats, of numbers by repeat: what moves both alike is no noise. None
    where no repeat has both. Raises ValueError: of two to five ratios, one is not above 0."""
    return MedianInterval.of([value / theirs[repeat] for repeat, value in mine.items() if repeat in theirs])


def _of_few(samples: Sequence[float]) -> tuple[float, float]:
    """Student's interval of two to five samples."""
    logs = [log(sample) for sample in samples]
    half = max(log1p(LEAST_NOISE), student(len(logs) - 1) * statistics.stdev(logs) / len(logs) ** 0.5)
    mean = statistics.fmean(logs)
    return exp(mean - half), exp(mean + half)


def _left_out(n: int) -> tuple[int, float]:
    """How many of six or more samples may be left out on either side, and the chance that the median lies between the
    others: it lies outside where at most so many fair coins of n show the same side."""
    outside = accumulate(comb(n, out) for out in range(n))
    coverages = [*takewhile(lambda coverage: coverage >= WANTED, (1 - 2 * ways / 2**n for ways in outside))]
    return len(coverages) - 1, coverages[-1]
