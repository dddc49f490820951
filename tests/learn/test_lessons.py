"""Lessons: what they say is in their runs, every page has its place, and the runs answer their questions."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from engines.errors import UsageProblem
from engines.report.events import Audited, Round
from engines.report.run_state import RunState, fold_all
from engines.wire import read_trace
from spec_tui.learn import lesson_facts as picks
from spec_tui.learn.lesson import find, names, recorded, terms
from spec_tui.learn.lesson_facts import of_round, of_run
from spec_tui.learn.templates import PLACE, Missing, fill, holds, paragraphs
from spec_tui.learn.walk import Walk, told
from spec_tui.present.step.phases import phases_of
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui.screens.lessons import body

WIDTH, ROOM = 76, 11  # of the text at 80x24, in presenter mode too; its title apart


def walk(name: str) -> Walk:
    lesson = find(name)
    return Walk(lesson, recorded(lesson))


def texts(name: str) -> list[str]:
    """Everything of a lesson that may hold numbers."""
    lesson = find(name)
    question = lesson.question
    pages = [*lesson.pages, question.page, question.reveal]
    said = [page.text for page in pages] + [question.low, question.high, lesson.about, lesson.title]
    return said + [page.title for page in pages] + [text for c in question.choices for text in (c.text, c.wrong)]


def test_there_are_lessons_on_every_method_and_each_is_short():
    assert names() == ("forward", "pld", "draft", "laws", "trees", "rest", "dresd", "admg", "rasd", "payoff")
    assert all(3 <= len(find(name).pages) <= 7 for name in names())
    with pytest.raises(UsageProblem, match="no lesson 'trie'") as caught:
        find("trie")
    assert "trees" in caught.value.hint


@pytest.mark.parametrize("name", names())
def test_no_number_is_typed_into_a_text(name):
    for text in texts(name):
        assert not re.search(r"\d", PLACE.sub("", re.sub(r"\[when [^\]]*\]", "", text))), text


@pytest.mark.parametrize("name", names())
def test_every_page_is_there_has_its_place_and_fits(name):
    w = walk(name)
    assert len(w.pages) == len(w.lesson.pages) and w.asking
    for _ in range(w.length):
        view = w.view()
        assert view.place.phase in phases_of(view.run, view.place.round)
        assert view.place.round <= len(view.run.rounds) and view.paragraphs
        assert not re.search(r"[{}\[\]]|\b(None|nan)\b", " ".join(view.paragraphs))
        assert set(view.terms) <= set(terms())
        rows = body(view, WIDTH, room=ROOM)
        assert len(rows) <= ROOM and all(sum(len(text) for text, _ in row) <= WIDTH for row in rows)
        if view.asks:
            w.said = w.right()
        w.forward()


@pytest.mark.parametrize("name", names())
def test_the_run_answers_the_question_and_explains_every_wrong_guess(name):
    w = walk(name)
    w.at = len(w.pages)
    view, right = w.view(), w.right()
    assert view.asks and view.place.phase in ("context", "draft", "tree"), "nothing of the answer is shown yet"
    guesses = range(1, len(view.options) + 1) if view.options else range(view.most + 1)
    assert right in guesses and len(guesses) > 1
    facts = w.facts(w.lesson.question.page)
    assert not view.options or sum(holds(choice.when, facts) for choice in w.lesson.question.choices) == 1
    for guess in guesses:
        again = Walk(w.lesson, w.runs)
        again.at = w.at
        assert again.guess(guess) and not again.guess(guess)
        told_first = again.view().paragraphs[0]
        assert again.view().verdict == (guess == right)
        assert (told_first == "You are right.") == (guess == right)
        assert guess == right or len(told_first.split()) > 9
        assert len(body(again.view(), WIDTH, room=ROOM)) <= ROOM
    assert not any(w.guess(wrong) for wrong in (-1, len(view.options) + 1 if view.options else view.most + 1))


@pytest.mark.parametrize("name, accepted", [("draft", 3), ("draft", 12), ("rest", 2)])
def test_another_run_gives_another_answer(name, accepted):
    """The round of the question with less of it accepted, or more."""
    w = walk(name)
    trace, number = w.lesson.traces[0], w.place(w.lesson.question.page).round
    events = list(read_trace(trace_path(trace)).events)
    at = next(i for i, event in enumerate(events) if isinstance(event, Round) and event.index == number)
    events[at] = replace(events[at], path=tuple(range(accepted)))
    again = Walk(w.lesson, {**w.runs, trace: fold_all(events)})
    assert again.place(w.lesson.question.page).round == number and again.right() == accepted != w.right()
    again.at = len(again.pages)
    assert again.guess(accepted) and again.view().verdict


def test_facts_are_what_the_events_say():
    run = fold_all(read_trace(trace_path("tree")).events)
    rounds = list(run.rounds)
    facts = of_run(run)
    assert facts["forwards"] == len(rounds) and facts["tokens"] == len(run.finished.tokens)
    assert facts["accepted"] == sum(len(event.path) for event in rounds)
    assert facts["m"] == pytest.approx((facts["tokens"] - 1) / len(rounds))
    assert facts["drafting"] + facts["idle"] == len(rounds)
    assert facts["verdict"] == next(e for e in read_trace(trace_path("tree")).events if isinstance(e, Audited)).verdict
    for event in rounds:
        kept, node = 0, -1
        while True:  # the favourite path by hand: the likeliest child each time, as long as it was accepted
            below = [n for n, parent in enumerate(event.draft.parents) if parent == node]
            node = max(below, key=lambda n: event.draft.probs[n], default=None)
            if node is None or kept >= len(event.path) or event.path[kept] != node:
                break
            kept += 1
        assert picks.on_favourite(event) == kept == of_round(run, event.index)["favourite"]


def test_picks_find_the_round_and_say_where_there_is_none():
    run = fold_all(read_trace(trace_path("pld")).events)
    sizes = [len(event.path) for event in run.rounds]
    assert picks.pick(run, "most accepted") == 1 + sizes.index(max(sizes))
    assert picks.pick(run, "prefill") == 0 and picks.pick(run, "last") == len(run.rounds)
    assert picks.pick(run, "pruned") is None and picks.pick(run, "several draws") is None
    assert all(picks.pick(RunState(), name) is None for name in ["prefill", *picks.PICKS])
    with pytest.raises(KeyError):
        picks.pick(run, "best")


def test_texts_are_filled_and_paragraphs_hold_or_not():
    facts = {"run.n": 3, "run.share": 0.256, "run.time": 0.0123, "run.word": "a"}
    assert fill("{run.n|token} {run.share:.0%} {run.time:ms} {run.word}", facts) == "3 tokens 26% 12.3 ms a"
    assert paragraphs("one\ntwo\n\n[when run.n > 2 and run.n < 9] yes\n\n[when run.n < 0.5 * run.n] no", facts) == (
        "one two", "yes")
    with pytest.raises(Missing, match=r"run\.m"):
        fill("{run.m}", facts)


def test_a_run_without_what_a_page_shows_leaves_the_page_out():
    lesson = find("pld")
    vain = recorded(lesson)["pld-in-vain"]
    w = Walk(lesson, {"pld": recorded(find("payoff"))["draft"], "pld-in-vain": vain})
    assert 0 < len(w.pages) < len(lesson.pages)
    for _ in range(w.length + 1):
        assert w.view().paragraphs
        w.said = 1
        w.forward()


def test_told_line_by_line_with_and_without_a_learner():
    plain = "\n".join(told(walk("rest")))
    assert plain.count("Shown: rest, ") == walk("rest").length and "Answer: " in plain and "You are right" not in plain
    question, _, answer = plain.partition("Your guess")[2].partition("Answer:")
    assert "accepted" not in re.findall("Shown: .*", question)[0] and answer
    given = iter(["99", "x", "4"])
    asked = []
    learner = "\n".join(told(walk("rest"), lambda words: asked.append(words) or next(given)))
    assert len(asked) == 3 and "You said 4; it is" in learner and "Answer:" not in learner
    assert "Answer:" in "\n".join(told(walk("rest"), lambda words: ""))


def test_words_of_pages_are_all_used_and_explained_without_numbers():
    used = {term for name in names() for page in find(name).pages for term in page.terms}
    assert used == set(terms()) and not re.search(r"\d", "".join(terms().values()))
