"""Forecasts of other draft sizes: against simulated rounds, brute force and arithmetic done by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel, chances
from engines.report.events import Draft, Emitted, Origin, Prefilled, Round, Started
from engines.report.metrics import Metrics, measure, together

FLAT = CostCurve(((1, 1.0), (64, 1.0)))
PRICE = CostCurve(((1, 0.01), (8, 0.017)))
STARTED = Started("draft", {}, "exact", 0.0, 1.0, 0, 0, 64, "m", "float32", "cpu", (1, 2, 3), price=PRICE.points)
LINEAR = CostCurve(((1, 1.0), (2, 2.0)))
shares = st.floats(0.0, 1.0)
prices = st.dictionaries(st.integers(1, 64), st.floats(1e-3, 1.0), min_size=1, max_size=7).map(
    lambda found: CostCurve.fit(found.items()))
forecasts = st.builds(
    SpeedupModel, price=prices, first=st.floats(0, 0.5), each=st.floats(0, 0.5), rows=st.floats(1, 4),
    most=st.integers(1, 24), scale=st.floats(0.5, 2), other=st.floats(0, 0.1),
    chances=st.lists(shares, min_size=1, max_size=6).map(tuple),
)


def test_by_hand():
    cost = SpeedupModel(CostCurve(((1, 10.0), (5, 14.0))), first=1.0, each=0.5, scale=2.0, other=2.0, most=4,
                    chances=(0.5, 0.8))
    assert cost.seconds(0) == 22 and cost.seconds(1) == 1 + 22 + 2 and cost.seconds(3) == 1 + 2 * 0.5 + 26 + 2
    assert cost.needs(3) == pytest.approx(30 / 22)
    assert cost.survival(3) == pytest.approx([0.5, 0.4, 0.32])  # the last chance holds beyond
    assert cost.expected(3) == pytest.approx(2.22)
    assert cost.speed_up(3) == pytest.approx(2.22 * 22 / 30)
    assert cost.acceptance_needed(1) == pytest.approx(25 / 22 - 1, abs=1e-6)


def test_free_verification_pays_from_nothing_and_best_is_everything():
    free = SpeedupModel(FLAT, most=8, chances=(0.5,))
    assert free.best == 8 and free.pays_from == pytest.approx(0, abs=1e-6) and free.at_best == pytest.approx(9)


def test_what_costs_a_forward_a_token_cannot_pay():
    dear = SpeedupModel(LINEAR, first=0.1, each=0.1, most=16, chances=(1.0,))
    assert dear.best == 0 and dear.pays_from is None and dear.at_best < 1
    assert all(dear.acceptance_needed(depth) is None for depth in range(1, 17))


@settings(max_examples=60)
@given(forecasts)
def test_best_is_the_best_of_all(forecast):
    speeds = [forecast.speed_up(depth) for depth in range(forecast.most + 1)]
    assert speeds[0] == pytest.approx(1)
    assert speeds[forecast.best] == pytest.approx(max(speeds))


@settings(max_examples=60)
@given(forecasts, st.integers(1, 24))
def test_the_acceptance_needed_breaks_even(forecast, depth):
    needed = forecast.acceptance_needed(depth)
    if needed is None:
        assert forecast.assuming(1.0).speed_up(depth) < 1
    else:
        assert forecast.assuming(needed).speed_up(depth) >= 1 - 1e-6
        if needed > 1e-3:
            assert forecast.assuming(needed - 1e-3).speed_up(depth) < 1


@settings(max_examples=60)
@given(forecasts)
def test_paying_at_all_is_paying_with_everything_accepted(forecast):
    assert (forecast.pays_from is None) == (forecast.at_best < 1)


DRAFTED = 5  # tokens of a chain


def played(
    passes: int, first: float, each: float, rounds: int = 2000, chance: float = 0.7, scale: float = 1.5
) -> Metrics:
    """A run on dice: chains of five in every second round, none in between; verifying takes ``scale`` times t(n)."""
    dice, events = random.Random(3), [STARTED, Prefilled(3, 0, 0.1, Emitted(1, "a", "a", "target"), 3)]
    for n in range(rounds):
        size = DRAFTED * (n % 2)
        kept = next((n for n in range(size) if dice.random() > chance), size)
        draft = Draft(tuple(range(size)), tuple(range(-1, size - 1)), ("x",) * size, (0.9,) * size, (0,) * size,
                      (Origin("draft"),) if size else ())
        emitted = (*(Emitted(n, "x", "x", "accepted", n) for n in range(kept)), Emitted(9, "y", "y", "corrected"))
        events.append(Round(
            n, 3, draft, tuple(range(kept)), emitted, (first + (passes - 1) * each if passes else first) * bool(size),
            scale * PRICE.at(1 + size), 0.002, 9, {"draft_forwards": passes} if size and passes else {}))
    return measure(events)


@pytest.mark.parametrize("first, each", [(0.003, 0.001), (0.002, 0.002)])
def test_a_run_gives_the_costs_it_had(first, each):
    """What drafts has a price, and its passes took twice that."""
    run = played(DRAFTED, first, each)
    found = run.forecast(SpeedupModel(PRICE, first=first / 2, each=each / 2, most=8, alone=0.02))
    assert (found.first, found.each, found.rows) == pytest.approx((first, each, 1.0))
    assert (found.scale, found.other, found.most, found.alone) == pytest.approx((1.5, 0.002, 8, 0.02))
    seconds = found.first + 4 * found.each + 1.5 * PRICE.at(6) + 0.002
    assert found.seconds(5) == pytest.approx(seconds)
    assert found.expected(5) == pytest.approx(sum(0.7**n for n in range(6)), rel=0.03)


def test_passes_without_a_price_are_one_a_level_or_one_for_all():
    unpriced = SpeedupModel(PRICE)
    found = played(DRAFTED, 0.002, 0.002).forecast(unpriced)
    assert (found.first, found.each) == pytest.approx((0.002, 0.002))
    for passes in (1, 0):  # Medusa's, and a lookup
        found = played(passes, 0.002, 0.0).forecast(unpriced)
        assert (found.first, found.each) == pytest.approx((0.001, 0.0))  # a mean over all rounds


def test_a_model_that_drafted_nothing_is_taken_at_its_price():
    idle = together([played(0, 0.0, 0.0)])
    found = idle.forecast(SpeedupModel(PRICE, first=0.003, each=0.001))
    assert (found.first, found.each) == (0.003, 0.001)


def test_where_most_was_copied_beside_a_model_a_deeper_draft_takes_no_longer():
    found = played(1, 0.004, 0.0).forecast(SpeedupModel(PRICE, first=0.003, each=0.003))
    assert (found.first, found.each) == pytest.approx((0.002, 0.0))  # a mean over all rounds


def test_what_was_not_timed_gives_no_forecast():
    run = played(DRAFTED, 0.002, 0.002)
    for lacking in (Metrics(), replace(run, draft_seconds=None), replace(run, other_seconds=None)):
        assert lacking.forecast(SpeedupModel(PRICE)) is None and lacking.break_even is None


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8))
def test_chances_lie_between_what_was_seen(pairs):
    tried, kept = [max(p) for p in pairs], [min(p) for p in pairs]
    found = chances(tried, kept)
    if not sum(tried):
        assert found == ()
        return
    seen = [k / t for t, k in zip(tried, kept) if t]
    assert len(found) == len(tried) and all(min(seen) - 1e-9 <= chance <= max(seen) + 1e-9 for chance in found)


def test_chances_come_to_the_truth_and_lean_where_little_was_seen():
    found = chances((4000, 2000, 2), (2000, 1800, 0))
    assert found[0] == pytest.approx(0.5, abs=0.01) and found[1] == pytest.approx(0.9, abs=0.01)
    assert 0.5 < found[2] < 0.9  # two failures are no proof
    assert chances((10, 5), (5,))[1] < 0.5  # nothing accepted at the last depth


def test_expected_tokens_are_those_of_simulated_rounds():
    dice, truth, tried, kept = random.Random(5), (0.8, 0.5, 0.9), [0] * 3, [0] * 3
    tokens, rounds = 0, 20_000
    for _ in range(rounds):
        depth = 0
        while depth < 3:
            tried[depth] += 1
            if dice.random() >= truth[depth]:
                break
            kept[depth] += 1
            depth += 1
        tokens += depth + 1
    forecast = SpeedupModel(FLAT, chances=chances(tried, kept))
    assert forecast.expected(3) == pytest.approx(tokens / rounds, abs=0.01)
