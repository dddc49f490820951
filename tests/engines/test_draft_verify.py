"""The engine draft-verify: what was searched, or named, is left out; what cannot be is refused with a way out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines import Request, UsageProblem
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.draft_verify.layer_search.search_store import Search, SearchSettings, SearchTrial
from engines.model.skipped_layers import SkippedLayers
from engines.report.events import Prefilled, Round, Started

TURN = (("user", "Repeat: the cat sat on the mat."),)


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    return tmp_path / "layers"


def searched(tiny, *speed_ups: float, found: bool = True) -> Search:
    """A search of the tiny target in which a set named after its number has this speed-up."""
    sets = ["a2", "a1-2,m3", "m1"]
    trials = tuple(SearchTrial(skipped, up, 100 * up, 100.0) for skipped, up in zip(sets, speed_ups))
    best = max(trials, key=lambda trial: trial.speed_up) if found else None
    return Search("tiny", search_store.identify(tiny.target), SearchSettings(2, "d", 8, 0), trials, best)


def run(tiny, **options):
    tiny.forget()  # what earlier drafts took
    return list(tiny.run(Request(TURN, "draft-verify", options, max_new_tokens=30)))


def test_without_a_search_it_says_what_to_do(tiny, home):
    with pytest.raises(UsageProblem, match="no layer search") as caught:
        run(tiny)
    assert "spec-tui search-layers" in caught.value.hint and "layers=a3" in caught.value.hint


def test_what_was_searched_is_left_out(tiny, home):
    search_store.save(searched(tiny, 0.9, 1.2, 1.1))
    started, prefilled, *_ = run(tiny)
    assert isinstance(started, Started) and started.lossless
    unexpected = [said for said in started.warnings if "cannot be faster" not in said]  # what a busy machine forecasts
    assert unexpected == []
    assert isinstance(prefilled, Prefilled)
    assert prefilled.layers.attention == ("search", "search", "") and prefilled.layers.mlp == ("", "", "search")
    assert prefilled.layers.alpha is None and prefilled.layers.positions == 0


def test_named_sublayers_need_no_search(tiny, home):
    for word, attention, mlp in (("m2", "", "2"), ("A1 a3", "13", ""), ("a1-3,m1-3", "123", "123")):
        _, prefilled, *_ = run(tiny, layers=word)
        left_out = ("".join(str(n) for n in (1, 2, 3) if rules[n - 1] == "search")
                    for rules in (prefilled.layers.attention, prefilled.layers.mlp))
        assert tuple(left_out) == (attention, mlp)


@pytest.mark.parametrize(
    ("word", "words"), [("", "no sublayers"), ("a4", "3 layers"), ("b2", "'b2'"), ("\x1b[31m", "names no sublayers")]
)
def test_a_word_that_names_nothing_is_refused(tiny, word, words):
    with pytest.raises(UsageProblem, match=words) as caught:
        run(tiny, layers=word)
    assert "a3,a5-7,m4" in caught.value.hint


def test_what_other_layers_need_stays(tiny, monkeypatch):
    monkeypatch.setattr(tiny.target.sublayers, "attention", frozenset({0, 2}))
    with pytest.raises(UsageProblem, match=r"cannot do without a2$"):
        run(tiny, layers="a1-3,m1")


def test_an_unfinished_search_serves_and_says_so(tiny, home):
    search_store.save(searched(tiny, 0.9, 1.2, found=False))
    started, prefilled, *_ = run(tiny)
    assert "best of 2 trials so far" in started.warnings[0] and prefilled.layers.mlp == ("", "", "search")


def test_that_nothing_pays_is_said(tiny, home):
    search_store.save(searched(tiny, 0.7, 0.82, 0.6))
    assert "the best set reached 0.82x" in run(tiny)[0].warnings[0]


def test_a_search_of_another_machine_is_told_and_not_taken(tiny, home):
    here = searched(tiny, 1.3)
    there = replace(here.identity, machine=replace(here.identity.machine, processor="another"))
    search_store.save(replace(here, identity=there))
    with pytest.raises(UsageProblem, match="on this machine") as caught:
        run(tiny)
    assert "a2 was found for it" in caught.value.hint


def test_a_damaged_search_is_not_believed(tiny, home):
    found = searched(tiny, 1.3)
    search_store.save(found)
    (home / f"{found.identity.id}.json").write_text("{}")
    with pytest.raises(UsageProblem, match="cannot be used") as caught:
        run(tiny)
    assert "--fresh" in caught.value.hint


def test_less_left_out_agrees_more(tiny):
    """The draft without one sublayer of six is nearer to the target than the one without any."""
    rates = []
    for word in ("m2", "a1-3,m1-3"):
        rounds = [e for e in run(tiny, layers=word, exit_start=0.0, num_tokens=3) if isinstance(e, Round)]
        rates.append(sum(len(r.path) for r in rounds) / sum(len(r.draft.tokens) for r in rounds))
    assert rates[0] > rates[1]


def test_the_engine_counts_layers_as_the_search_does(tiny):
    from engines.methods.draft_verify.layer_search.search import removable_of

    assert removable_of(tiny.target) == SkippedLayers((1, 2, 3), (1, 2, 3))
