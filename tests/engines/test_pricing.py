"""t(n) at load: measured once, kept in a file, and what the runs say of it."""

from __future__ import annotations

import time
from shutil import rmtree

import pytest

from engines import ModelUnavailable, Request
from engines.cost import interleaved, pricing
from engines.cost.curve import CostCurve
from engines.model.loading import wrap
from engines.report.events import Finished, Round, Started
from engines.runtime import Prices, Runtime
from tests.conftest import ONE, make_llama, make_tokenizer

TURN = (("user", "Repeat: one two three one two three."),)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "costs"


@pytest.fixture
def model():
    return wrap(make_llama(3), "tiny", ONE)


@pytest.fixture
def measured(monkeypatch):
    """Whole measurements made; the machine is neither faster nor slower than its curve when it is checked."""
    calls = []

    def measure(model, **checking):
        if not checking:
            calls.append(model.name)
        return CostCurve(tuple((rows, 0.001 * (10 + rows)) for rows in checking.get("sizes", sorted(pricing.ROWS))))

    monkeypatch.setattr(pricing, "measure", measure)
    return calls


def test_all_sizes_are_measured_and_the_cache_is_left_empty(cache, model):
    assert [rows for rows, _ in pricing.price(model).points] == sorted(pricing.ROWS)
    assert model.length == 0 and not model.tokens


def test_a_price_is_measured_once_and_then_read(cache, model, measured):
    first = pricing.price(model)
    assert pricing.price(model) == first and measured == ["tiny"]
    pricing.price(model, fresh=True)
    assert len(measured) == 2


def test_another_shape_or_dtype_has_its_own_price(cache, model, measured):
    import torch

    pricing.price(model)
    for other in (make_llama(3, layers=3), make_llama(3).to(torch.bfloat16)):
        pricing.price(wrap(other, "tiny", ONE))
    assert len(measured) == 3 == len(list(cache.iterdir()))


def test_other_weights_cost_the_same(cache, measured):
    for seed in (3, 9):
        pricing.price(wrap(make_llama(seed), "tiny", ONE))
    assert len(measured) == 1


DAMAGES = [
    "", "{}", "[1, 2]", "[]", "[[0, 1]]", '[["a", null]]', "\udcff[", '[[1, "inf"]]', "[[1, NaN]]", "[[1, 1], [1, 2]]",
    "[" * 100_000,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_file_is_measured_anew(cache, model, measured, damage):
    pricing.price(model)
    next(cache.iterdir()).write_bytes(damage.encode("utf-8", "surrogateescape"))
    again = pricing.price(model)
    assert len(measured) == 2
    assert pricing.price(model) == again and len(measured) == 2


@pytest.mark.parametrize("quiet, days", [(True, 30), (False, 1)])
def test_what_was_measured_on_a_busy_machine_is_measured_again_the_next_day(cache, model, measured, monkeypatch, quiet,
                                                                            days):
    monkeypatch.setattr(pricing.OtherLoad, "quiet", lambda self: quiet)
    now = time.time()
    for day in (0, days - 0.1, days + 0.1):
        monkeypatch.setattr("engines.machine.time", lambda day=day: now + day * 86400)
        pricing.price(model)
    assert len(measured) == 2


@pytest.mark.parametrize("quiet, times", [(False, 2), (True, 1)])
def test_a_price_of_a_busy_moment_is_measured_again_once_passes_take_less(cache, model, monkeypatch, quiet, times):
    speed, calls = [3.0], []

    def measure(model, **checking):
        calls.append(checking)
        return CostCurve(tuple((rows, speed[0] * 0.001 * (10 + rows)) for rows in checking.get("sizes", (1, 4))))

    monkeypatch.setattr(pricing, "measure", measure)
    monkeypatch.setattr(pricing.OtherLoad, "quiet", lambda self: quiet)
    assert pricing.price(model) == pricing.price(model)
    speed[0] = 1.0
    monkeypatch.setattr(pricing.OtherLoad, "quiet", lambda self: True)
    assert pricing.price(model).at(1) == pytest.approx(0.033 if quiet else 0.011)
    pricing.price(model)
    assert calls.count({}) == times, "a curve of a quiet machine stays"
    assert not pricing.price(model).busy


@pytest.mark.parametrize("busy", [1, 3])
def test_a_drafter_is_priced_as_a_share_of_the_target_however_busy_the_machine_is(cache, model, monkeypatch, busy):
    """A head measured while the cores were busy kept ``hybrid`` from drafting for a day."""
    target, known = wrap(make_llama(3, layers=3), "target", ONE), CostCurve(((1, 0.010), (4, 0.012)))
    each = {"target": 0.010, "tiny": 0.002}
    monkeypatch.setattr(pricing, "measure", lambda model, **checking: CostCurve(((1, busy * each[model.name]),)))
    assert pricing.price(model, beside=(target, known)).at(1) == pytest.approx(0.002)
    assert pricing.price(model).at(1) == pytest.approx(0.002), "it is kept so"


def test_under_dice_the_first_price_stays(cache, model):
    first, later = CostCurve(((1, 1.0),)), CostCurve(((1, 0.5),))
    assert pricing.fixed_price(model, first) == first
    assert pricing.fixed_price(model, later) == first
    assert pricing.fixed_price(model, later, fresh=True) == later == pricing.fixed_price(model, first)


def test_the_first_curve_of_a_quiet_machine_replaces_a_busy_one_for_good(cache, model):
    """A curve of a busy moment decided the sizes of drafts under random draws for good."""
    busy, worse, quiet, later = (CostCurve(((1, second),), second > 1) for second in (3.0, 4.0, 1.0, 0.5))
    given = [pricing.fixed_price(model, measured) for measured in (busy, worse, quiet, busy, later)]
    assert given == [busy, busy, quiet, quiet, quiet]


def test_where_nothing_can_be_written_it_is_measured_each_time(cache, model, measured):
    rmtree(cache.parent)  # what loading the model measured
    cache.parent.write_text("a file where the folder should be")
    assert pricing.price(model).points and pricing.price(model).points
    assert len(measured) == 2
    assert not list(cache.parent.parent.glob("tmp*"))


def test_a_slow_model_pays_for_a_few_sizes_only(model, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(interleaved, "perf_counter", lambda: float(next(clock)))
    assert len(pricing.measure(model).points) == 3


def test_a_short_context_limits_the_rows(cache):
    short = wrap(make_llama(3, context=16), "short", ONE)
    assert max(rows for rows, _ in pricing.measure(short).points) < 16


def test_runs_say_the_price(tiny):
    started, *_ = tiny.run(Request(TURN, "pld", max_new_tokens=5))
    assert isinstance(started, Started)
    prices = tiny.prices
    assert (started.price, started.draft_price) == (prices.target.points, prices.draft.points)
    assert (started.head, started.head_price) == (None, ()) and tiny.ready.price == started.price
    assert {kind: head.price for kind, head in tiny.ready.heads.items()} == {
        kind: curve.points for kind, curve in prices.heads.items()}


def drafted(runtime, **kw) -> list[int]:
    return [len(e.draft.tokens) for e in runtime.run(Request(TURN, max_new_tokens=60, **kw)) if isinstance(e, Round)]


@pytest.mark.parametrize(("engine", "options"), [("pld", {}), ("draft", {}), ("draft", {"shape": "tree"})])
def test_auto_drafts_less_where_rows_are_dear(tiny, monkeypatch, engine, options):
    drafting = CostCurve(((1, 0.001), (8, 0.001)))
    counts = {}
    for name, points in (("cheap", ((1, 1.0), (64, 1.0))), ("dear", ((1, 1.0), (2, 3.0), (64, 130.0)))):
        monkeypatch.setattr(tiny, "fixed_prices", Prices(CostCurve(points), drafting))
        counts[name] = drafted(tiny, engine=engine, options=options, law="rejection", temperature=1.0)
    assert sum(counts["dear"]) / len(counts["dear"]) < sum(counts["cheap"]) / len(counts["cheap"])
    assert sum(counts["dear"][8:]) == 0, "once it has been tried, nothing is drafted at that price"


def test_paper_drafts_the_published_sizes_whatever_they_cost(tiny, monkeypatch):
    monkeypatch.setattr(tiny, "prices", Prices(CostCurve(((1, 1.0), (2, 50.0))), CostCurve(((1, 1.0),))))
    counts = drafted(tiny, engine="draft", options={"budget": "paper", "confidence": 0})
    assert set(counts[:6]) == {5}


def test_a_draft_model_that_cannot_pay_says_so_at_the_start(tiny, monkeypatch):
    request = Request(TURN, "draft", max_new_tokens=5)
    price = CostCurve(((1, 1.0), (64, 2.0)))
    monkeypatch.setattr(tiny, "prices", Prices(price, CostCurve(((1, 0.2),))))
    assert not any("cannot be faster" in w for w in next(iter(tiny.run(request))).warnings)
    monkeypatch.setattr(tiny, "prices", Prices(price, CostCurve(((1, 1.1),))))
    warning = next(w for w in next(iter(tiny.run(request))).warnings if "cannot be faster" in w)
    assert "110%" in warning and "0.9" in warning


def test_the_text_under_dice_does_not_depend_on_the_clock(tiny, monkeypatch):
    """Auto sizes decide on counts and on a fixed curve there, so that a seed repeats its run."""
    def tokens():
        *_, finished = tiny.run(Request(TURN, "draft", law="rejection", temperature=1.0, seed=4, max_new_tokens=60))
        assert isinstance(finished, Finished)
        return finished.tokens

    first = tokens()
    list(tiny.run(Request(TURN, "draft", max_new_tokens=60)))  # another run learns something in between
    another = Prices(CostCurve(((1, 1.0), (2, 9.0))), tiny.prices.draft)  # another load, another mood
    monkeypatch.setattr(tiny, "prices", another)
    assert tokens() == first


def test_a_model_too_large_to_verify_with_is_a_sentence(monkeypatch):
    def measure(model, **_):
        raise RuntimeError("out of memory: tried to allocate 9 GB")

    monkeypatch.setattr(pricing, "measure", measure)
    with pytest.raises(ModelUnavailable, match="fails when several tokens are verified: out of memory"):
        Runtime.measured(wrap(make_llama(11, layers=4), "large", ONE), make_tokenizer())
