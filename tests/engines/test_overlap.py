"""Overlapping drafting with verifying, forecast of a text's guesses, against rounds written down by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cost.curve import CostCurve
from engines.cost.overlap import BEYOND, forecast, likeliest
from engines.report.guess_ranks import guess_ranks
from engines.report.run_state import fold_all
from engines.wire import read_trace
from spec_tui.session.sample_traces import trace_path

PRICE = CostCurve(((1, 0.010), (3, 0.010), (64, 0.071)))


def test_rounds_and_hits_of_a_text_by_hand():
    """Chains of two: [1 1 | 1] all kept and the next guess right; [1 | 2] cut, the second guess; [BEYOND] cut at once;
    a round that comes to a place without a guess does not count."""
    ranks = [1, 1, 1, 1, 2, BEYOND, 1, None, 1, 1, 1]
    one = forecast(ranks, 2, 1, PRICE, 0.004)
    assert (one.rounds, one.tokens, one.hits) == (4, 3 + 2 + 1 + 3, 2)
    assert one.turns == pytest.approx(4 * (0.008 + 0.010))
    assert one.overlapped == pytest.approx(2 * 0.010 + 2 * 0.018)
    several = forecast(ranks, 2, 3, PRICE, 0.004)
    assert several.hits == 3 and several.gain == pytest.approx(4 * 0.018 / (3 * 0.010 + 0.018))
    assert several.speed_up == pytest.approx(9 * 0.010 / several.overlapped)
    assert forecast([None, None], 2, 1, PRICE, 0.004) is None


def test_the_first_context_that_is_prepared_is_pearls():
    """That all is accepted, where the drafter is mostly right; where it is mostly wrong, its second guess at once."""
    assert likeliest([1] * 9 + [2], 2, 1) == {(2, 1)}
    assert likeliest([2] * 9 + [1], 2, 1) == {(0, 2)}
    assert len(likeliest([1, 2, 3], 2, 99)) == 3 * 2 + 1, "every end but a first guess that was cut"


@given(st.lists(st.sampled_from([1, 1, 1, 2, 3, BEYOND, None]), min_size=1, max_size=60), st.integers(1, 6),
       st.floats(0.0001, 0.02))
def test_more_prepared_contexts_never_lose_and_a_drafter_that_takes_no_time_gains_nothing(ranks, length, step):
    found = [forecast(ranks, length, prepared, PRICE, step) for prepared in (1, 2, 4, 99)]
    if found[0] is not None:
        gains = [one.gain for one in found]
        assert gains == sorted(gains) and gains[0] >= 1 and gains[-1] <= 2 + 1e-9
        assert forecast(ranks, length, 99, PRICE, 0.0).gain == pytest.approx(1)


def test_ranks_are_those_of_the_events():
    for name in ("smollm2-tree", "smollm2-draft"):
        run = fold_all(read_trace(trace_path(name)).events)
        ranks = guess_ranks(run.rounds)
        assert len(ranks) == sum(len(event.emitted) for event in run.rounds)
        accepted = [rank for rank, e in zip(ranks, (e for event in run.rounds for e in event.emitted)) if e.node >= 0]
        assert accepted and all(rank is not None and rank < BEYOND for rank in accepted)
        firsts = [rank for event in run.rounds if event.draft.tokens for rank in guess_ranks([event])[:1]]
        assert firsts.count(None) == 0
        assert (max(accepted) > 1) == (name == "smollm2-tree"), "a chain has one guess a place"
