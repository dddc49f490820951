"""Intervals against what order statistics and Student's t are known to give."""

from __future__ import annotations

import random
import statistics
from math import exp, log
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.race.interval import ENOUGH, LEAST_NOISE, MedianInterval, ratio_of, student

numbers = st.floats(1e-9, 1e9)  # speeds and ratios


@pytest.mark.parametrize(
    "n, low, high, coverage",  # tables of the sign test: ranks of the 95% interval of a median
    [(6, 1, 6, 0.96875), (8, 1, 8, 0.9921875), (9, 2, 8, 0.9609375),
     (10, 2, 9, 0.978515625), (15, 4, 12, 0.96484375), (20, 6, 15, 0.95861053)],
)
def test_ranks_are_those_of_the_tables(n, low, high, coverage):
    found = MedianInterval.of(random.Random(n).sample([float(i + 1) for i in range(n)], n))
    assert (found.low, found.high, found.samples) == (low, high, n)
    assert found.coverage == pytest.approx(coverage) and found.median == (n + 1) / 2


def test_the_interval_of_a_thousand_repeats_takes_no_second():
    begun = process_time()
    found = MedianInterval.of([float(i) for i in range(1000)])
    assert (found.low, found.high) == (468, 531) and found.coverage >= 0.95 and process_time() - begun < 0.5


def test_one_sample_has_no_interval_and_none_no_estimate():
    assert MedianInterval.of([3.0]) == MedianInterval(3.0, None, None, None, 1)
    assert MedianInterval.of([]) is None


@given(st.lists(numbers, min_size=2, max_size=40))
def test_the_median_lies_inside(samples):
    found = MedianInterval.of(samples)
    assert found.low <= found.median <= found.high and found.median == statistics.median(samples)
    assert MedianInterval.of(sorted(samples, reverse=True)) == found and found.coverage >= 0.95


@pytest.mark.parametrize(("samples", "half"), [  # 97.5% quantiles of the tables of Student's t
    ((1.62, 1.68), 12.71 * log(1.68 / 1.62) / 2), ((0.9, 1, 1 / 0.9), 4.30 * log(1 / 0.9) / 3**0.5),
    ((1.5, 1.5001), log(1 + LEAST_NOISE)), ((2, 2, 2, 2, 2), log(1 + LEAST_NOISE)),  # timings that agree by chance
])
def test_of_few_the_interval_is_students_and_never_narrow(samples, half):
    found = MedianInterval.of(samples)
    middle = statistics.geometric_mean(samples)
    assert (found.low, found.high) == (pytest.approx(middle / exp(half)), pytest.approx(middle * exp(half)))
    assert (found.coverage, found.samples) == (0.95, len(samples))


def test_students_quantiles_are_those_of_the_tables():
    table = {1: 12.706, 4: 2.776, 10: 2.228, 11: 2.201, 12: 2.179, 14: 2.145, 17: 2.110, 18: 2.101}
    assert {n: student(n) for n in table} == pytest.approx(table, abs=0.006)
    assert 1.96 < student(60) < student(17)


def test_few_numbers_without_a_logarithm_are_refused():
    with pytest.raises(ValueError):
        MedianInterval.of([0.0, 1.0])


def test_ratios_are_of_the_same_repeats():
    assert ratio_of({0: 6, 1: 8, 5: 1}, {0: 3, 1: 2}) == MedianInterval.of([2, 4]) and ratio_of({0: 1}, {1: 1}) is None


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    dice = random.Random(1)
    found = [MedianInterval.of([dice.expovariate(1) for _ in range(7)]) for _ in range(4000)]  # skewed, as timings are
    held = sum(e.low <= 0.6931 <= e.high for e in found) / len(found)
    assert held == pytest.approx(found[0].coverage, abs=0.01)


@pytest.mark.parametrize("repeats", range(2, ENOUGH))
def test_so_does_that_of_few(repeats):
    dice = random.Random(1)
    found = [MedianInterval.of([dice.lognormvariate(3, 0.1) for _ in range(repeats)]) for _ in range(4000)]
    assert sum(e.low <= exp(3) <= e.high for e in found) / len(found) == pytest.approx(0.95, abs=0.015)
