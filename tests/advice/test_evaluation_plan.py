"""What an evaluation will do is said before anything runs: by t(n), what drafting costs, and what is usual."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.bench.prompt_files import open_prompts
from engines.report.events import Ready
from engines.request import Request
from spec_tui.present.advice_text import planned
from spec_tui.session.advice_setup import foresee

# Qwen2.5-Coder 1.5B with its 0.5B on two cores.
PAIR = Ready("m", "float32", "cpu", 1, 100, 512, True, draft_model="d",
             price=((1, 0.063), (4, 0.086), (16, 0.261), (64, 1.0)), draft_price=((1, 0.021), (16, 0.09)))
REQUEST = Request((("user", "x"),), max_new_tokens=256)


@pytest.fixture(scope="module")
def suite():
    return open_prompts(None).suite


def test_the_likeliest_come_first_and_of_each_source_one(suite):
    found = foresee(PAIR, suite, REQUEST, 180)
    assert {engine for engine, _ in found.plan.methods[:3]} == {"draft", "hybrid", "pld"}
    best = max(found.forecasts[part, ""] for part in ("draft", "suffix"))
    assert found.forecasts["hybrid", ""] == best > 1, "what drafts best is a part of it"
    assert all(found.forecasts[method] > 1 for method in found.plan.methods)
    dear = foresee(replace(PAIR, draft_price=((1, 0.2), (16, 0.8))), suite, REQUEST, 180)
    assert dear.forecasts["draft", ""] == 1 and dear.likeliest.index(("draft", "")) > 0
    assert found.likeliest[-1][0] in ("admg", "draft-verify"), "what only a run can tell comes last"
    unknown = foresee(replace(PAIR, price=()), suite, REQUEST, 180)
    assert len(unknown.plan.methods) == len(unknown.likeliest) and not unknown.forecasts


def test_what_will_be_done_is_said(suite):
    short, long = (planned(foresee(PAIR, suite, REQUEST, 60 * minutes)) for minutes in (3, 30))
    assert short.startswith("First autoregressive and the methods that are likeliest to gain answer the same prompts,")
    assert "draft" in short and "(forecast 1." in short
    assert "recycling" in short.partition("There is no time for")[2].partition(":")[0]
    assert "with their defaults: " in long and "Then the 3 fastest with longer answers" in long
    assert "no time" not in long and "all their settings" in long
