"""Branches: the same text goes on from any round, and what is said about the two versions is so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines import Request
from engines.methods.shared import past_answers
from engines.report.run_state import Log, first_difference, fold_all
from engines.report.wording import counted
from spec_tui.present.rows import words_of
from spec_tui.present.step.branching import differences, going_on, same_text, uses_past_answers, version_from
from spec_tui.present.step.explain import explain
from spec_tui.present.step.phases import StepPosition
from spec_tui.present.step.player import StepPlayer
from spec_tui.tui.widgets.step_panels import SoFar, phase_rows, text_so_far

TURN = (("user", "Repeat: the cat sat on the mat, the cat sat on the hat."),)
OPTIONS = {"pld": {"num_tokens": 4, "budget": "paper"}, "draft": {"shape": "tree"}, "rest": {"n_min": 1},
           "eagle": {"shape": "tree"}, "rasd": {"drafter": "eagle", "retrieval": "pld"}}


def request(engine="draft", **kw):
    return Request(TURN, engine, max_new_tokens=40, **kw)


@pytest.fixture(scope="module")
def asked(tiny):
    request_ = request(temperature=0.8, seed=4)
    return request_, fold_all(tiny.run(request_))


@pytest.mark.parametrize("engine", ["autoregressive", "pld", "draft", "rest", "eagle", "medusa", "rasd"])
def test_another_engine_writes_the_same_from_any_round(tiny, asked, engine):
    request_, run = asked
    for number in {1, len(run.rounds) // 2, len(run.rounds)}:
        changed = going_on(request_, run, number, replace(request_, engine=engine, options=OPTIONS.get(engine, {})))
        other = fold_all(tiny.run(changed))
        a, b = version_from(run, number), version_from(other, 1)
        assert first_difference(a, b) is None and len(a.tokens) == len(b.tokens)
        for run_ in (a, b):
            assert not run_.running and sum(len(e.emitted) for e in run_.rounds) == len(run_.tokens)
        words, well = same_text(request_, changed, a, b)
        assert well and f"all {counted(len(a.tokens), 'token')}:" in words
        assert run.root_of(number - 1).emitted.token == other.tokens[0].emitted.token


def test_the_step_view_tells_the_prompt_of_a_branch_from_the_answer_that_was_begun(tiny, asked):
    request_, run = asked
    number = len(run.rounds) // 2
    branch = fold_all(tiny.run(going_on(request_, run, number, replace(request_, engine="pld"))))
    here = StepPosition(number), StepPosition(1)
    counts = [[row for row in map(words_of, phase_rows(one, place, 80, 9)) if "tokens:" in row]
              for one, place in zip((run, branch), here)]
    assert counts[0] == counts[1] != []
    prompt = len(run.started.prompt)
    assert explain(run, here[0]).paragraphs == explain(branch, here[1]).paragraphs
    assert f"{prompt} of the prompt" in explain(branch, here[1]).paragraphs[0]
    begun = f"The prompt has {prompt} tokens, and the answer that goes on here has {branch.started.continued}."
    assert begun in explain(branch, StepPosition()).paragraphs[0]
    titles = [words_of(SoFar().draw(StepPlayer(one, place), 60, 7)[0]) for one, place in zip((run, branch), here)]
    assert "so far" in titles[0] and "in this branch" in titles[1], "its tokens are not all of the answer"
    labelled = (replace(one, tokens=Log(replace(t, text=t.piece) for t in one.tokens)) for one in (run, branch))
    texts = [list(map(words_of, text_so_far(one, place, 80, 20))) for one, place in zip(labelled, here)]
    assert texts[0] == texts[1], "no line break where the branch begins"


def test_a_branch_of_a_branch(tiny, asked):
    request_, run = asked
    second = going_on(request_, run, 2, replace(request_, engine="pld"))
    branch = fold_all(tiny.run(second))
    third = going_on(second, branch, 3, replace(second, engine="autoregressive"))
    again = fold_all(tiny.run(third))
    assert [t.emitted.token for t in version_from(again, 1).tokens] == [
        t.emitted.token for t in run.tokens[len(run.tokens) - len(version_from(again, 1).tokens) :]]
    assert first_difference(version_from(branch, 3), version_from(again, 1)) is None


def test_what_may_differ_is_not_called_a_bug(tiny, asked):
    request_, run = asked
    for change, said in (({"temperature": 1.2}, "Sampling was changed"), ({"seed": 5}, "Sampling was changed"),
                         ({"law": "redraw"}, "LOSSY"), ({"law": "rejection"}, "Sampling was changed")):
        changed = going_on(request_, run, 2, replace(request_, **change))
        words, well = same_text(request_, changed, version_from(run, 2), version_from(fold_all(tiny.run(changed)), 1))
        assert said in words and well is None
    greedy = [replace(request_, temperature=0.0, law=law) for law in ("exact", "redraw")]
    assert same_text(*greedy, version_from(run, 2), version_from(run, 2))[1], "at temperature 0 all laws are alike"
    dice = replace(request_, law="rejection")
    assert "Random draws decide" in same_text(dice, dice, version_from(run, 2), version_from(run, 2))[0]


def test_other_tokens_are_named(asked):
    request_, run = asked
    a = version_from(run, 2)
    other = replace(a, tokens=[*a.tokens[:3], replace(a.tokens[3], emitted=replace(a.tokens[3].emitted, token=-7))])
    words, well = same_text(request_, request_, a, other)
    assert well is False and "token 4" in words


def test_changes_in_words():
    a = request("draft", options={"num_tokens": 12})
    b = replace(a, options={"num_tokens": 3}, temperature=0.5)
    assert differences(a, b) == ["num_tokens 3", "temperature 0.5"]
    assert differences(a, replace(a, engine="pld", options={})) == ["engine pld"]
    assert differences(a, a) == []


def test_the_end_of_a_run_is_a_short_version(asked):
    _, run = asked
    nothing = version_from(run, len(run.rounds) + 1)
    assert len(nothing.tokens) == 0 and nothing.metrics.tokens_per_second is None
    assert nothing.metrics.mean_generated_length is None


def test_drafts_from_past_answers_are_noticed(tiny):
    asked = request("suffix")
    past_answers.forget()  # those of other tests
    tiny.forget_acceptance()
    first = fold_all(tiny.run(asked))
    again = fold_all(tiny.run(asked))  # finds the first among past answers
    alone = fold_all(tiny.run(replace(asked, keeps=False)))
    assert uses_past_answers(again) and not uses_past_answers(first) and not uses_past_answers(alone)
