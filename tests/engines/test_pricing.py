"""t(n) at load: measured once, kept in a file, and what the runs say of it."""

from __future__ import annotations

import json

import pytest

from engines import Request
from engines.cost import CostCurve
from engines.events import Finished, Round, Started
from engines.target import pricing
from engines.target.loading import wrap
from tests.conftest import make_llama

TURN = (("user", "Repeat: one two three one two three."),)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "costs.json"


@pytest.fixture
def model():
    return wrap(make_llama(3), "tiny", threads=1)


@pytest.fixture
def measured(monkeypatch):
    """How often something was measured."""
    calls, real = [], pricing.measure
    monkeypatch.setattr(pricing, "measure", lambda model: calls.append(model.name) or real(model))
    return calls


def test_a_price_is_measured_once_and_then_read(cache, model, measured):
    first = pricing.price(model)
    assert [rows for rows, _ in first.points] == sorted(pricing.ROWS) and model.length == 0
    assert pricing.price(model) == first and measured == ["tiny"]
    pricing.price(model, fresh=True)
    assert len(measured) == 2


def test_another_shape_or_dtype_has_its_own_price(cache, model, measured):
    import torch

    pricing.price(model)
    for other in (make_llama(3, layers=3), make_llama(3).to(torch.bfloat16)):
        pricing.price(wrap(other, "tiny", threads=1))
    assert len(measured) == 3 and len(json.loads(cache.read_text())) == 3
    pricing.price(wrap(make_llama(9), "other weights", threads=1))
    assert len(measured) == 3


DAMAGES = ["", "[1, 2]", '{"KEY": "x"}', '{"KEY": [[0, 1]]}', '{"KEY": [["a", null]]}', "\udcff{"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_measured_anew(cache, model, measured, damage):
    pricing.price(model)
    key = next(iter(json.loads(cache.read_text())))
    cache.write_bytes(damage.replace("KEY", key).encode("utf-8", "surrogateescape"))
    again = pricing.price(model)
    assert len(measured) == 2
    assert pricing.price(model) == again and len(measured) == 2


def test_where_nothing_can_be_written_it_is_measured_each_time(cache, model, measured):
    cache.parent.write_text("a file where the folder should be")
    assert pricing.price(model).points and pricing.price(model).points
    assert len(measured) == 2


def test_a_slow_model_pays_for_a_few_sizes_only(model, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(pricing, "perf_counter", lambda: float(next(clock)))
    assert len(pricing.measure(model).points) == 3


def test_a_short_context_limits_the_rows(cache):
    short = wrap(make_llama(3, context=16), "short", threads=1)
    assert max(rows for rows, _ in pricing.measure(short).points) < 16


def test_runs_say_the_price(tiny):
    started, *_ = tiny.run(Request(TURN, "pld", max_new_tokens=5))
    assert isinstance(started, Started)
    assert started.price == tiny.ready.price == tiny.price.points
    assert started.draft_price == tiny.draft_price.points


def drafted(runtime, **kw) -> list[int]:
    return [len(e.draft.tokens) for e in runtime.run(Request(TURN, max_new_tokens=60, **kw)) if isinstance(e, Round)]


@pytest.mark.parametrize(("engine", "options"), [("pld", {}), ("draft", {}), ("draft", {"shape": "tree"})])
def test_auto_drafts_less_where_rows_are_dear(tiny, monkeypatch, engine, options):
    monkeypatch.setattr(tiny, "draft_price", CostCurve(((1, 0.001), (8, 0.001))))
    counts = {}
    for name, points in (("cheap", ((1, 1.0), (64, 1.0))), ("dear", ((1, 1.0), (2, 3.0), (64, 130.0)))):
        monkeypatch.setattr(tiny, "_acceptance", {})
        monkeypatch.setattr(tiny, "price", CostCurve(points))
        counts[name] = drafted(tiny, engine=engine, options=options, law="rejection", temperature=1.0)
    assert sum(counts["dear"]) / len(counts["dear"]) < sum(counts["cheap"]) / len(counts["cheap"])
    assert sum(counts["dear"][8:]) == 0, "once it has been tried, nothing is drafted at that price"


def test_paper_drafts_the_published_sizes_whatever_they_cost(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "price", CostCurve(((1, 1.0), (2, 50.0))))
    counts = drafted(tiny, engine="draft", options={"budget": "paper", "confidence": 0})
    assert set(counts[:6]) == {5}


def test_a_draft_model_that_cannot_pay_says_so_at_the_start(tiny, monkeypatch):
    request = Request(TURN, "draft", max_new_tokens=5)
    monkeypatch.setattr(tiny, "price", CostCurve(((1, 1.0), (64, 2.0))))
    monkeypatch.setattr(tiny, "draft_price", CostCurve(((1, 0.2),)))
    assert not any("cannot pay" in w for w in next(iter(tiny.run(request))).warnings)
    monkeypatch.setattr(tiny, "draft_price", CostCurve(((1, 1.1),)))
    warning = next(w for w in next(iter(tiny.run(request))).warnings if "cannot pay" in w)
    assert "110%" in warning and "x0.9" in warning


def test_the_text_under_dice_does_not_depend_on_the_clock(tiny, monkeypatch):
    """Auto sizes decide on counts and on a fixed curve there, so that a seed repeats its run."""
    def tokens():
        *_, finished = tiny.run(Request(TURN, "draft", law="rejection", temperature=1.0, seed=4, max_new_tokens=60))
        assert isinstance(finished, Finished)
        return finished.tokens

    first = tokens()
    list(tiny.run(Request(TURN, "draft", max_new_tokens=60)))  # another run learns something in between
    assert tokens() == first
