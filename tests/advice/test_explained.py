"""``run --explain``: why an answer was faster or slower, in its own numbers, and what to try first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.report.events import Round, Started
from engines.report.run_state import RunState, fold, fold_all
from engines.request import Request
from spec_tui.present.speed_explained import explanation
from spec_tui.present.speed_verdict import of_runs
from tests.advice.made import Costs, PacedRacer

PRICE = ((1, 0.010), (2, 0.012), (64, 0.136))


def answered(engine: str, costs: Costs, price=PRICE, **options) -> RunState:
    run = RunState()
    racer = PacedRacer(**{engine.replace("-", "_"): costs})
    racer.costs[engine] = costs
    for event in racer.run(Request((("user", "copy 1"),), engine, max_new_tokens=25)):
        if isinstance(event, Started):
            event = replace(event, price=price, options=options)
        run = fold(run, event)
    return run


def test_a_faster_answer_in_three_sentences():
    said = explanation(answered("pld", Costs(3, 0.014), budget="auto"))
    assert len(said) == 3 and said[0].startswith("A round took 14.3 ms: 14.3 ms to verify 3.0 tokens, 0.0 ms to draft")
    assert said[0].endswith("by t(n) a round without drafts takes 10.2 ms.")
    assert "It made 3.00 tokens: 2.00 of 2.0 drafted tokens were accepted; the break-even is 1.40, so drafting made " \
           "it faster: about 2.14x, computed" in said[1]
    assert said[2].startswith("First to try: nothing clear from this run; spec-tui advise")


def test_a_baseline_that_was_measured_is_what_it_is_compared_with():
    run, alone = answered("pld", Costs(3, 0.014), budget="auto"), answered("autoregressive", Costs(1, 0.012))
    said, measured = explanation(run, alone), of_runs(run, alone)
    assert said[0].endswith("in the baseline a round without drafts takes 12.0 ms.")
    assert said[1].endswith(f"faster: {measured.words}, against the baseline.") and measured.ratio > 2.4


@pytest.mark.parametrize("run, tried", [
    (answered("draft", Costs(2, 0.012, 0.030), budget="auto"), "an engine whose drafts cost less: drafting takes 71%"),
    (answered("pld", Costs(2, 0.060), budget="paper"), "budget=auto, which verifies only what pays"),
    (answered("autoregressive", Costs()), "an engine that drafts; spec-tui advise"),
    (answered("pld", Costs(), budget="auto"), "another engine; spec-tui advise"),
    (answered("admg", Costs(2, 0.012, 0.014), num_tokens=4), "drafts of another size. Forecast"),
], ids=["dear", "paper", "baseline", "no guess", "no budget"])
def test_what_to_try_follows_from_what_cost_most(run, tried):
    assert explanation(run)[-1].startswith(f"First to try: {tried}")


@pytest.mark.parametrize("verify, draft", [(0.012, 0.004), (0.010, 0.002)], ids=["rows cost", "rows are free"])
def test_drafts_of_which_nothing_is_accepted_are_not_called_dear(verify, draft):
    costs = Costs(2, verify, draft)
    drafted = [event for event in answered("draft", costs, budget="auto").events]
    nothing = fold_all(replace(event, path=(), emitted=event.emitted[-1:]) if isinstance(event, Round) else event
                       for event in drafted)
    said = explanation(nothing)
    assert "0.00 of 1.0 drafted tokens were accepted" in said[1]
    assert said[-1].startswith("First to try: another engine: only 0% of the drafted tokens were accepted")


def test_what_was_not_measured_is_not_explained():
    assert explanation(RunState()) == ["There is nothing to explain: no round was timed."]
    assert explanation(answered("pld", Costs(3, 0.014), price=()))[-1].startswith("The time of a round without drafts")
