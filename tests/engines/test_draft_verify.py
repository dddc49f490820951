"""The engine draft-verify: a named set is left out, or the middle's; what cannot be is refused with a way out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines import Request, UsageProblem
from engines.model.skipped_layers import SkippedLayers
from engines.report.events import Prefilled, Round, Started

TURN = (("user", "Repeat: the cat sat on the mat."),)


def run(tiny, **options):
    tiny.forget()  # what earlier drafts took
    return list(tiny.run(Request(TURN, "draft-verify", options, max_new_tokens=30)))


def left_out(prefilled) -> tuple[str, str]:
    """The numbers of the sublayers, attention and MLP."""
    return tuple("".join(f"{n} " for n, rule in enumerate(rules, 1) if rule == "search").rstrip()
                 for rules in (prefilled.layers.attention, prefilled.layers.mlp))


def test_with_nothing_named_every_second_attention_of_the_middle_is_left_out(tiny, sample):
    for model, expected in ((tiny, "1 3"), (sample, "4 6 8")):
        started, prefilled, *_ = run(model)
        assert isinstance(started, Started) and started.lossless and isinstance(prefilled, Prefilled)
        assert left_out(prefilled) == (expected, "")
        assert prefilled.layers.alpha is None and prefilled.layers.positions == 0
        assert not [said for said in started.warnings if "cannot be faster" not in said]


def test_named_sublayers_are_left_out(tiny):
    for word, attention, mlp in (("m2", "", "2"), ("A1 a3", "1 3", ""), ("a1-3,m1-3", "1 2 3", "1 2 3")):
        assert left_out(run(tiny, layers=word)[1]) == (attention, mlp)


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
    monkeypatch.setattr(tiny.target.sublayers, "attention", frozenset({2}))
    assert left_out(run(tiny)[1]) == ("3", "")
    monkeypatch.setattr(tiny.target.sublayers, "attention", frozenset())
    with pytest.raises(UsageProblem, match="names no sublayers"):
        run(tiny)


def test_less_left_out_agrees_more(tiny):
    """The draft without one sublayer of six is nearer to the target than the one without any."""
    rates = []
    for word in ("m2", "a1-3,m1-3"):
        rounds = [e for e in run(tiny, layers=word, exit_start=0.0, num_tokens=3) if isinstance(e, Round)]
        rates.append(sum(len(r.path) for r in rounds) / sum(len(r.draft.tokens) for r in rounds))
    assert rates[0] > rates[1]


def test_another_set_begins_with_the_first_exit_threshold(tiny):
    def first(layers: str) -> float:
        return next(e for e in run(tiny, layers=layers) if isinstance(e, Round)).note["exit_threshold"]

    tiny.forget_acceptance()
    assert first("m2") == 0.6 != first("m2")
    assert first("a1-3,m1-3") == 0.6


@given(st.frozensets(st.integers(1, 99)), st.frozensets(st.integers(1, 99)))
def test_a_set_is_read_as_it_was_written(attention, mlp):
    removed = SkippedLayers(tuple(sorted(attention)), tuple(sorted(mlp)))
    assert SkippedLayers.parse(str(removed), 99) == removed and len(removed) == len(attention) + len(mlp)


def test_sets_are_written_short_and_read_with_patience():
    assert str(SkippedLayers((3, 5, 6, 7), (4,))) == "a3,a5-7,m4"
    assert SkippedLayers.parse(" M4 a5-7, a3,a6 ", 7) == SkippedLayers((3, 5, 6, 7), (4,))


@pytest.mark.parametrize("text", ["3", "a", "a0", "a9", "a5-3", "b2", "a3;m4", "a-1", "a٣", "[bold]", "a99999"])
def test_what_names_no_sublayer_of_the_model_is_refused(text):
    with pytest.raises(UsageProblem) as caught:
        SkippedLayers.parse(text, 8)
    assert "a3,a5-7,m4" in caught.value.hint
