"""What drafting gains with several requests at once, against the sums written down for each case."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cost import pricing
from engines.cost.concurrent import LIMIT, Served, at, stops_after
from engines.cost.curve import CostCurve

FLAT_THEN_STEEP = CostCurve(((1, 0.010), (16, 0.010), (64, 0.040)))  # sixteen rows are free
GENTLE = CostCurve(((1, 0.010), (2, 0.011), (8, 0.014), (64, 0.035)))


@given(points=st.lists(st.tuples(st.integers(2, 200), st.floats(0.001, 1)), max_size=6), requests=st.integers(1, 300),
       rows=st.floats(1, 40), beside=st.floats(0, 1))
def test_a_pass_of_several_requests_is_one_over_all_their_rows(points, requests, rows, beside):
    curve = CostCurve.fit({1: 0.001, **dict(points)}.items())
    assert curve.of_requests(requests, beside).at(rows) == pytest.approx(curve.at(requests * rows) + beside)


@pytest.mark.parametrize("draft", [None, CostCurve(((1, 0.001), (64, 0.010)))])
@pytest.mark.parametrize("requests", [1, 3, 8, 40, 100])
def test_length_and_gain_are_the_best_of_all_lengths(requests, draft):
    def rate(n: int) -> float:
        drafting = n * draft.at(requests) if draft else 0.0
        return sum(0.7**k for k in range(n + 1)) / (drafting + GENTLE.at(requests * (n + 1)))

    found = at(Served(price=GENTLE, draft_price=draft), requests, (0.7,))
    best = max(range(17), key=rate)
    assert found.length == best and found.gain == pytest.approx(rate(best) / rate(0))
    assert found.pays_from is None or 0 <= found.pays_from <= 1


def test_where_free_rows_are_used_up_drafting_stops_paying():
    """One request has fifteen rows for nothing, eight have one each, and from sixteen on each row costs as much as any
    other: then nothing but a sure draft pays."""
    served = Served(price=FLAT_THEN_STEEP)
    gains = [at(served, requests, (0.6,)) for requests in (1, 4, 8, 16, 64)]
    assert [point.gain for point in gains] == sorted((point.gain for point in gains), reverse=True)
    assert gains[0].length > gains[1].length > gains[2].length >= 1 and gains[-1].length == 0
    last = stops_after(served, (0.6,))
    assert at(served, last, (0.6,)).gain > 1 == at(served, last + 1, (0.6,)).gain
    assert stops_after(served, (1.0,)) > last and stops_after(served, (0.0,)) == 0
    assert stops_after(Served(price=CostCurve(((1, 0.01), (64, 0.01)))), (0.5,)) is None and LIMIT > 64


def test_long_contexts_let_drafting_pay_for_more_requests():
    """Reading keys and values takes the same with drafts and without, so drafts share it."""
    short = Served(price=FLAT_THEN_STEEP, reading=1e-6, measured_at=200)
    long = Served(price=FLAT_THEN_STEEP, reading=1e-6, measured_at=200, context=4000)
    assert short.by(1).seconds(0) == pytest.approx(FLAT_THEN_STEEP.at(1))
    assert short.by(4).seconds(0) == pytest.approx(FLAT_THEN_STEEP.at(4) + 3 * 200e-6)
    assert long.by(4).seconds(2) == pytest.approx(FLAT_THEN_STEEP.at(12) + (4 * 4000 - 200) * 1e-6)
    last = stops_after(short, (0.6,))
    assert at(short, last + 1, (0.6,)).gain == 1 < at(long, last + 1, (0.6,)).gain


def test_what_a_token_of_context_costs_is_told_by_two_contexts(monkeypatch):
    calls, clock = [], [0.0]

    def forward(tokens, parents):
        clock[0] += 0.002 + 3e-6 * model.cache.length

    model = SimpleNamespace(
        context_limit=3000, cache=SimpleNamespace(length=0, reserve=lambda rows: None), drop=lambda: None,
        forward=forward, synchronize=lambda: None, truncate=lambda length: calls.append(length))
    monkeypatch.setattr(pricing, "perf_counter", lambda: clock[0])
    seconds, context = pricing.reading(model)
    assert seconds == pytest.approx(3e-6) and context == 192 and calls[-1] == 0, "the cache is left empty"
    model.context_limit = 300
    assert pricing.reading(model)[0] == 0, "two contexts that differ little tell nothing"
