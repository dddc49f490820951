"""Speeds of another machine: modelled of what was measured here."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from engines import UsageProblem
from engines.advice.what_if import _drafting, modelled, stops_after
from engines.cost.curve import CostCurve
from engines.cost.other_machine import parse
from engines.report.metrics import Metrics
from spec_tui.export.advice_report import as_object
from tests.advice.made import ALONE, Costs, PacedRacer, ran
from tests.advice.test_verdict import READY, report, told

PRICE = ((1, ALONE), (2, 0.0125), (3, 0.015), (64, 0.2))


@pytest.fixture(scope="module")
def found():
    return ran(PacedRacer(PRICE, pld=Costs(3, 0.015)), "pld,rest")


def test_by_its_own_times_the_model_says_what_was_measured(found):
    own = parse("here", lambda name: "\n".join(f"{rows},{seconds}" for rows, seconds in PRICE))
    said = modelled(found.rounds[-1], own, READY)
    assert said[1].speed_up == pytest.approx(found.rounds[-1].ratio(1).ratio, rel=0.02)


def test_a_machine_that_was_measured_is_modelled_as_it_is(found):
    """The same drafts on half as many threads: every pass takes longer, one over three rows by more."""
    slower = tuple((rows, seconds * (1.6 if rows == 1 else 2.1)) for rows, seconds in PRICE)
    there = ran(PacedRacer(slower, autoregressive=Costs(1, slower[0][1]), pld=Costs(3, slower[2][1])), "pld,rest")
    printed = json.dumps({"price": slower, "draft_price": []})
    said = modelled(found.rounds[-1], parse("there", lambda name: printed), READY)
    measured = there.rounds[-1].ratio(1).ratio
    assert said[1].speed_up == pytest.approx(measured, rel=0.02) and measured < found.rounds[-1].ratio(1).ratio * 0.8


def test_where_rows_are_free_tokens_per_step_decide_and_where_they_cost_nothing_is_gained(found):
    ready = replace(READY, parameters=10**9)
    free, dear = (parse(f"memory=1GB/s,flops={flops}", str) for flops in ("1PFLOPS", "0.000001TFLOPS"))
    tokens = found.rounds[-1].metrics(1).mean_generated_length
    assert modelled(found.rounds[-1], free, ready)[1].speed_up == pytest.approx(tokens, rel=0.01)
    assert modelled(found.rounds[-1], dear, ready)[1].speed_up < 1.01
    asked = replace(report(found), machine=free, ready=ready)
    shown = told(asked)
    assert "MODELLED, not measured" in shown and "without reading the KV cache" in " ".join(shown.split())
    assert as_object(asked)["modelled"]["lanes"]["pld"]["speed_up"] == pytest.approx(tokens, rel=0.01)


def test_lookups_take_as_long_as_here_beside_passes_of_a_draft_model():
    m = Metrics(draft_seconds=1.0, verify_seconds=2.0, lookup_seconds=0.4, draft_forwards=10, rows={1: 20})
    lanes = SimpleNamespace(lanes=[SimpleNamespace(engine="draft", options={}, draft_model="")])
    twice = CostCurve(tuple((rows, 2 * seconds) for rows, seconds in PRICE))
    told = json.dumps({"price": [[n, 2 * seconds] for n, seconds in PRICE], "draft_price": [[1, 0.01]]})
    machine = parse("there", lambda name: told)
    ready = replace(READY, price=PRICE, draft_model="draft")
    assert _drafting(m, lanes, 0, machine, ready, twice) == pytest.approx(0.4 + 10 * 0.01)
    head = replace(ready, draft_model=None)
    here = m.priced_by(CostCurve(PRICE)) / 2.0
    assert _drafting(m, lanes, 0, machine, head, twice) == pytest.approx(0.4 + 0.6 * here * 2)


def test_a_machine_by_its_numbers():
    found = parse("memory=2TB/s, flops=100, weights=1, overhead=50us", str)
    assert (found.memory, found.flops, found.weights, found.overhead) == (2e12, 1e14, 1, pytest.approx(5e-5))
    curve = found.pass_cost(10**9)
    assert curve.at(1) == pytest.approx(5e-4 + 5e-5) and curve.at(512) == pytest.approx(2e9 * 512 / 1e14 + 5e-5)
    assert parse("file", lambda name: "[[1, 0.1], [4, 0.2]]").table.at(4) == 0.2
    printed = '{"model": "m", "price": [[1, 0.1]], "draft_price": [[1, 0.01]]}'
    assert parse("file", lambda name: printed).draft_table.at(1) == 0.01
    for wrong in ("memory=1", "memory=1,flops=0", "memory=1,flops=x", "memory=1,flops=1,speed=3", "flops=1,memory=-1",
                  "memory=1e400GB/s,flops=1", "memory=1,flops=1,overhead=1e400ms", "batch=1e400"):
        with pytest.raises(UsageProblem, match="what-if"):
            parse(wrong, str)
    for wrong in ("1 2 3", '{"prices": []}', '{"price": 3}'):
        with pytest.raises(UsageProblem, match="holds no t"):
            parse(wrong, str)


def test_several_requests_at_once_gain_what_their_rows_leave(found):
    """Eight requests with three rows each: 24 rows with the draft, 8 for the baseline, by this machine's t(n)."""
    ready = replace(READY, price=PRICE)
    curve, one = found.rounds[-1].metrics(1), parse("batch=1", str)
    eight = parse("batch=8", str)
    assert eight.here and eight.requests == 8 and parse("memory=1TB/s,flops=1,batch=4", str).requests == 4
    here = modelled(found.rounds[-1], one, ready)[1].speed_up
    assert here == pytest.approx(found.rounds[-1].ratio(1).ratio, rel=0.02)
    passes = [count * CostCurve(PRICE).at(8 * rows) for rows, count in curve.rows.items()]
    expected = (curve.new_tokens - curve.answers) / sum(passes) * CostCurve(PRICE).at(8)
    assert modelled(found.rounds[-1], eight, ready)[1].speed_up == pytest.approx(expected, rel=0.01)
    assert expected < here
    asked = replace(report(found), machine=eight, ready=ready)
    assert as_object(asked)["modelled"]["lanes"]["pld"]["stops_after_requests"] is None
    stepped = replace(READY, price=((1, 0.010), (16, 0.011), (17, 0.050), (64, 0.200)))  # 6 x 3 rows
    assert stops_after(found.rounds[-1], one, stepped)[1] == 5
    assert "5 requests" in told(replace(asked, ready=stepped))
    assert "8 requests at once" in " ".join(told(asked).split())
    for wrong in ("batch=0", "batch=2.5", "batch=9999", "batch=x"):
        with pytest.raises(UsageProblem, match="what-if"):
            parse(wrong, str)
