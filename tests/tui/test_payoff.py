"""Whether drafting with a part of the target pays: the break-even agreement against closed forms and simulation."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.report.events import Draft, Emitted, Origin, Prefilled, Round, Started
from engines.report.metrics import measure
from spec_tui.tui.layers_view import Payoff, payoff

FLAT = ((1, 0.01), (64, 0.01))
STARTED = Started("admg", {}, "exact", 0.0, 1.0, 0, 0, 64, "m", "float32", "cpu", (1, 2, 3), price=FLAT)


def a_round(drafted: int, kept: int, each: float, verify: float = 0.01, note: dict | None = None) -> Round:
    draft = Draft(tuple(range(drafted)), tuple(range(-1, drafted - 1)), ("x",) * drafted, (0.9,) * drafted,
                  (0,) * drafted, (Origin("target"),) if drafted else ())
    emitted = (*(Emitted(n, "x", "x", "accepted", n) for n in range(kept)), Emitted(9, "y", "y", "corrected"))
    return Round(1, 3, draft, tuple(range(kept)), emitted, drafted * each, verify, 0.0, 9,
                 {"draft_forwards": drafted} if note is None else note)


def of(rounds: list[Round], price=FLAT) -> Payoff | None:
    started = replace(STARTED, price=price)
    events = [started, Prefilled(3, 0, 0.1, Emitted(1, "a", "a", "target"), 3), *rounds]
    return payoff(measure(events))


def test_a_run_by_hand():
    """Drafts of 4 at 6 ms beside forwards of 10 ms: 2 kept and one refused, then all 4 kept."""
    found = of([a_round(4, 2, 0.006), a_round(4, 4, 0.006), a_round(0, 0, 0.006)])
    assert found.fraction == pytest.approx(0.6)
    assert (found.kept, found.judged) == (6, 7)
    assert found.agreement == pytest.approx(6 / 7)


@given(st.floats(0.02, 0.98))
def test_where_rows_cost_nothing_agreement_must_exceed_the_fraction(fraction):
    assert of([a_round(3, 1, 0.01 * fraction)]).needed == pytest.approx(fraction, abs=1e-6)


@given(st.floats(0.02, 0.9), st.floats(1.0, 1.5))
def test_a_single_draft_must_earn_its_forward_and_its_row(fraction, second):
    """1 + a tokens for fraction + t(2)."""
    price = ((1, 0.01), (2, 0.01 * second), (64, 0.01 * second))
    found = of([a_round(1, 1, 0.01 * fraction, 0.01 * second)], price)
    single = replace(found.forecast, most=1)
    needed = fraction + second - 1
    if needed > 1 + 1e-9:
        assert single.pays_from is None
    else:  # rounding decides at 1
        assert single.pays_from == pytest.approx(needed, abs=1e-6) or (needed > 1 - 1e-9 and single.pays_from is None)


@given(st.integers(1, 12), st.floats(0.05, 0.8), st.floats(0.0, 0.05))
def test_at_the_needed_agreement_a_chain_is_as_fast_as_none_and_below_it_no_chain_is(drafted, fraction, slope):
    price = ((1, 0.01), (64, 0.01 * (1 + 63 * slope)))
    found = of([a_round(drafted, 1, 0.01 * fraction, 0.01 * (1 + drafted * slope))], price)
    if found.needed is None:
        assert found.forecast.at_best <= 1
        return
    speeds = [found.forecast.assuming(found.needed).speed_up(k) for k in range(1, 13)]
    assert max(speeds) == pytest.approx(1, abs=1e-4)
    below = found.forecast.assuming(found.needed * 0.98)
    assert all(below.speed_up(k) < 1 for k in range(1, 13)) and below.best == 0
    assert found.forecast.assuming(min(1.0, found.needed * 1.02 + 1e-3)).best > 0


def test_the_forecast_agrees_with_rounds_that_were_played():
    """Chains of 5 whose tokens agree with chance 0.7, by dice: tokens a second against the forecast's."""
    dice, rounds = random.Random(3), []
    for _ in range(4000):
        kept = next((n for n in range(5) if dice.random() > 0.7), 5)
        rounds.append(a_round(5, kept, 0.004))
    found, m = of(rounds), measure([STARTED, *rounds])
    assert found.agreement == pytest.approx(0.7, abs=0.01)
    played = (m.new_tokens / m.decode_seconds) * 0.01
    assert found.forecast.speed_up(5) == pytest.approx(played, rel=0.02)


def test_the_note_tells_the_forwards():
    assert of([a_round(4, 2, 0.006, note={"draft_forwards": 6})]).fraction == pytest.approx(0.4)
    for bad in (True, -1, "6", 1.5, None):
        assert of([a_round(4, 2, 0.006, note={"draft_forwards": bad})]) is None


def test_where_nothing_was_judged_or_priced_nothing_is_said():
    assert of([]) is None and of([a_round(0, 0, 0.0)]) is None
    assert of([a_round(4, 2, 0.006)], ()) is None


def test_a_draft_as_dear_as_the_target_cannot_pay():
    found = of([a_round(4, 4, 0.011)])
    assert found.needed is None and found.forecast.best == 0 and found.fraction == pytest.approx(1.1)
