"""Intervals against what order statistics are known to give."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.race.interval import MedianInterval

numbers = st.floats(-1e9, 1e9)


@pytest.mark.parametrize(
    "n, low, high, coverage",  # tables of the sign test: ranks of the 95% interval of a median
    [(2, 1, 2, 0.5), (3, 1, 3, 0.75), (5, 1, 5, 0.9375), (6, 1, 6, 0.96875), (8, 1, 8, 0.9921875), (9, 2, 8, 0.9609375),
     (10, 2, 9, 0.978515625), (15, 4, 12, 0.96484375), (20, 6, 15, 0.95861053)],
)
def test_ranks_are_those_of_the_tables(n, low, high, coverage):
    found = MedianInterval.of(random.Random(n).sample([float(i + 1) for i in range(n)], n))
    assert (found.low, found.high, found.samples) == (low, high, n)
    assert found.coverage == pytest.approx(coverage) and found.median == (n + 1) / 2


def test_one_sample_has_no_interval_and_none_no_estimate():
    assert MedianInterval.of([3.0]) == MedianInterval(3.0, None, None, None, 1)
    assert MedianInterval.of([]) is None


@given(st.lists(numbers, min_size=2, max_size=40))
def test_the_median_lies_inside(samples):
    found = MedianInterval.of(samples)
    assert found.low <= found.median <= found.high and found.median == statistics.median(samples)
    assert MedianInterval.of(sorted(samples, reverse=True)) == found
    assert found.coverage >= 0.95 or (found.low == min(samples) and found.high == max(samples))


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    dice = random.Random(1)
    found = [MedianInterval.of([dice.expovariate(1) for _ in range(7)]) for _ in range(4000)]  # skewed, as timings are
    held = sum(e.low <= 0.6931 <= e.high for e in found) / len(found)
    assert held == pytest.approx(found[0].coverage, abs=0.01)
