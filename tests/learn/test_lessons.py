"""Lessons: what they say is in their runs, every page has its place, and every question has one right answer."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from engines.errors import UsageProblem
from engines.report.events import Audited, Round
from engines.report.run_state import RunState, fold_all
from engines.reproduce.entry import shipped
from engines.wire import read_trace
from spec_tui.learn import lesson_facts as picks
from spec_tui.learn.figures import FIGURES
from spec_tui.learn.glossary_entries import entries
from spec_tui.learn.lesson import along, find, names, paths, recorded
from spec_tui.learn.lesson_facts import Missing, of_round, of_run
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.learn.lesson_text import lesson_lines
from spec_tui.learn.pictures import caption, picture
from spec_tui.learn.sources import every_source, named_in, sources
from spec_tui.learn.templates import PLACE, fill, paragraphs
from spec_tui.present.rows import words_of
from spec_tui.present.step.phases import phases_of
from spec_tui.present.step.player import BEFORE
from spec_tui.session.sample_traces import trace_path
from spec_tui.tui.screens.lessons import body

WIDTH, ROOM = 76, 11  # of the text at 80x24, in presenter mode too; its title apart
CONTINUED = re.compile(r"Limitations|appendix")  # of a source that is named before
TIMES = ("draft_seconds", "verify_seconds", "other_seconds")
NAMES = re.compile(r"t\(1\)|b\(n\+1\)|[A-Za-z]+(?:-\d+B?)+")  # with a digit of their own: Llama-2-13B


def progress(name: str) -> LessonProgress:
    return LessonProgress.of(find(name))


def texts(name: str) -> list[str]:
    """Everything of a lesson that may hold numbers."""
    lesson = find(name)
    pages = [words for page in lesson.pages for words in (page.title, page.text, page.do, page.note)]
    choices = [words for page in lesson.pages for choice in page.choices for words in (choice.text, choice.why)]
    return [lesson.about, lesson.title, *pages, *choices]


def test_there_is_a_lesson_on_every_subject_and_each_is_short():
    assert names() == ("forward", "draft", "greedy", "chance", "exact", "trees", "lookup", "rest", "dresd", "admg",
                       "heads", "rasd", "payoff", "choosing")
    for name in names():
        assert set(find(name).tables) <= set(shipped())
        pages = find(name).pages
        assert 4 <= len(pages) <= 10
        assert sum(bool(page.choices) for page in pages) in (1, 2, 3)
        idle = [not (page.do or page.choices) for page in pages]
        assert not any(map(all, pairwise(idle))), f"{name}: nothing to do on two pages in a row"
    with pytest.raises(UsageProblem, match="no lesson 'trie'") as caught:
        find("trie")
    assert "trees" in caught.value.hint


def test_the_quiz_asks_about_every_lesson_but_the_last():
    quiz = tomllib.loads((Path(__file__).parent / "quiz.toml").read_text())["questions"]
    assert len(quiz) == 20 and {one["lesson"] for one in quiz} == set(names()) - {"choosing"}


@pytest.mark.parametrize("name", names())
def test_no_number_is_typed_into_a_text(name):
    for text in texts(name):
        assert not re.search(r"\d", NAMES.sub("", PLACE.sub("", re.sub(r"\[when [^\]]*\]", "", text)))), text


@pytest.mark.parametrize("name", names())
def test_every_page_is_there_has_its_place_and_fits(name):
    w = progress(name)
    for w.at in range(w.length):  # noqa: B020
        view = w.view()
        assert view.place.phase in phases_of(view.run, view.place.round) and view.paragraphs
        assert view.place.round <= len(view.run.rounds)
        assert set(view.page.terms) <= set(entries())
        assert not view.asks or view.figure is not None or view.place.phase in ("context", "draft", "tree", "verify")
        for said in range(len(view.options) + 1):
            w.answers = {w.at: said} if said else {}
            shown = w.view()
            assert not re.search(r"[{}\[\]]|\b(None|nan)\b", " ".join((*shown.paragraphs, *shown.options, shown.note)))
            rows = body(shown, WIDTH, room=ROOM)
            assert len(rows) <= ROOM and all(sum(len(text) for text, _ in row) <= WIDTH for row in rows)
        w.answers = {}


@pytest.mark.parametrize("name", names())
def test_every_question_has_one_right_answer_and_explains_all(name):
    w = progress(name)
    for at, page in enumerate(w.pages):
        if not page.choices:
            continue
        for said in range(1, len(page.choices) + 1):
            w.at, w.answers = at, {}
            assert w.view().asks and not w.forward(), "a question is answered before the next page"
            assert w.answer(said)
            view, right = w.view(), w.right(page)
            assert w.answer(said) == (said != right), "a wrong answer can be corrected"
            assert view.verdict == (said == right) and len(view.paragraphs) == 2 - view.verdict
            assert all(len(words.split()) > 4 for words in view.paragraphs)
        w.answers = {}
        assert not any(w.answer(wrong) for wrong in (-1, 0, len(page.choices) + 1)) and w.view().asks


@pytest.mark.parametrize("name", names())
def test_no_page_shows_what_became_of_a_round_before_the_question_about_it(name):
    w = progress(name)
    for at, asking in enumerate(w.pages):
        if not any("{round." in choice.text + choice.why for choice in asking.choices):
            continue
        for w.at in range(at):
            view = w.view()
            same = view.figure is None and view.run is w.runs[asking.trace or find(name).traces[0]]
            if same and view.place.round == w.place(asking).round:
                assert view.hides and view.place.phase in BEFORE, view.page.title


def test_no_place_among_the_choices_is_right_more_often_than_others():
    taken = map(progress, names())
    rights = [(w.right(page), len(page.choices)) for w in taken for page in w.pages if page.choices]
    three = Counter(right for right, count in rights if count == 3)
    assert len(rights) > 20 and len(three) == 3 and max(three.values()) - min(three.values()) <= 2


@pytest.mark.parametrize("slower, right", [(None, 2), (10.0, 1), ("even", 3)])
def test_another_run_gives_another_answer(slower, right):
    """The same rounds on a clock that went slower: where the race comes out the other way round, or even, the other
    answer is right, and what explains it says the run's own numbers."""
    lesson = find("payoff")
    runs = recorded(lesson)
    page = next(page for page in lesson.pages if page.title == "Who wins?")
    rates = {name: run.metrics.tokens_per_second for name, run in runs.items()}
    even = rates["qwen-coder-plain"] / rates["qwen-coder-admg"]
    factor = 1.0 if slower is None else even if slower == "even" else slower
    edited = fold_all([
        replace(event, **{name: getattr(event, name) * factor for name in TIMES}) if isinstance(event, Round) else event
        for event in runs["qwen-coder-plain"].events])
    assert edited.metrics.tokens_per_second == pytest.approx(rates["qwen-coder-plain"] / factor)
    w = LessonProgress(lesson, {**runs, "qwen-coder-plain": edited})
    assert w.right(page) == right
    w.at = w.pages.index(page)
    assert w.answer(right) and w.view().verdict
    assert f"{edited.metrics.tokens_per_second:.1f}" in w.view().paragraphs[-1] or right == 1


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
    ended = [all(emitted.node >= 0 for emitted in event.emitted) for event in run.rounds]  # within its draft
    sizes = [0 if short else len(event.path) for event, short in zip(run.rounds, ended)]
    assert picks.pick(run, "most accepted") == 1 + sizes.index(max(sizes)) and max(sizes)
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


def test_every_source_that_a_page_names_is_known_and_stands_at_the_end_of_its_lesson():
    used = set()
    for name in names():
        lesson = find(name)
        for page in lesson.pages:
            assert len(named_in(page.see)) == len([one for one in page.see.split("; ") if not CONTINUED.match(one)]) \
                or not page.see, page.see
        cited = sources(lesson)
        used.update(cited)
        told_last = "\n".join(lesson_lines(progress(name))).partition("\nSources\n")[2]
        for one in cited:
            assert told_last.count(one.title) >= 1 and (one.text.startswith("#") if not one.url else one.authors)
    assert used == set(every_source())


def test_told_line_by_line_questions_come_first_and_answers_after():
    plain = "\n".join(lesson_lines(progress("trees")))
    text, _, answers = plain.partition("\nAnswers\n")
    right = [page.choices[progress("trees").right(page) - 1] for page in find("trees").pages if page.choices]
    assert len(right) == 2 and all(choice.text in text for choice in right)
    assert not any(fill(choice.why.partition("{")[0], {}) in text for choice in right)
    assert all(choice.why.partition("{")[0] in answers for choice in right) and "Presenter: " not in plain
    asking = [page.title for page in find("trees").pages if page.choices]
    shown = [after for line, after in zip(text.splitlines(), text.splitlines()[1:]) if line.endswith(tuple(asking))]
    assert len(shown) == 2 and not any("accepted" in line for line in shown) and "Figure: t(n)" in text
    given = iter(["99", "x", "2", ""])
    asked = []
    learner = "\n".join(lesson_lines(progress("trees"), lambda words: asked.append(words) or next(given), notes=True))
    assert len(asked) == 4 and "Right." in learner and learner.count("\nAnswers\n") == 1 and "Presenter: " in learner


def test_a_prediction_is_not_told_line_by_line_either_and_the_sample_model_is_as_large_as_its_file():
    plain = "\n".join(lesson_lines(progress("draft")))
    page = plain.partition("The target reads it all at once")[2].partition("What agrees stays")[0]
    assert page and "accepted" not in page and "bonus" not in page and "Shown: " not in page
    weights = Path(__file__).parents[2] / "sample_models" / "target" / "model.safetensors"
    assert f"sample_models/target, 12 million weights, {weights.stat().st_size / 1e6:.0f} MB" in plain


def test_one_and_two_of_something_are_said_as_people_say_them():
    w = progress("lookup")
    w.at = next(at for at, page in enumerate(w.pages) if len(page.choices) == 2)
    assert "Press 1 or 2, or click." in map(words_of, body(w.view(), WIDTH))
    said = []
    list(lesson_lines(w, lambda words: said.append(words) or ""))
    assert "Your answer, 1 or 2 (enter skips): " in said
    counts = next(figure for figure in map(w.figure, w.pages) if isinstance(figure, FIGURES["counts"]))
    while "once" not in "".join(said) and counts.at + 1 < len(counts.found):
        said += map(words_of, counts.rows(76, 12))
        counts.move(1)
    assert "once before" in " ".join(said) and "1 time " not in " ".join(said)
    figure = next(filter(None, map(progress("admg").figure, find("admg").pages)))
    while not any("1 of " in words_of(row) for row in figure.rows(76, 12)):
        figure.move(1)
    assert "1 of 60 sublayers is left out" in " ".join(map(words_of, figure.rows(76, 12)))
    plain = "\n".join(lesson_lines(progress("rasd")))
    assert re.search(r"branches that begin with ‹[^›]*›(, ‹[^›]*›)* or ‹", plain)


def test_every_picture_names_its_run_and_a_long_draft_is_wrapped():
    seen: set[str] = set()
    w = progress("lookup")
    said = []
    for w.at in range(w.length):  # noqa: B020
        view = w.view()
        said.append(caption(view, seen))
        assert view.name in said[-1] and view.run.started.model in said[-1]
        rows = [words_of(row) for row in picture(view, 76, 12)]
        assert all(len(row) <= 77 for row in rows) and (w.pages[w.at].figure or rows[0].startswith("text   …"))
    assert sum("It was asked" in words for words in said) == len(w.runs) and len(said) > len(w.runs)
    last = progress("choosing")
    last.at = last.length - 1
    assert caption(last.view(), set()) == "", "a list of papers shows no run"


@pytest.mark.parametrize("minutes", paths())
def test_a_path_is_a_lesson_of_pages_that_are_there(minutes):
    path = paths()[minutes]
    assert sum(stop.minutes for stop in path.stops) == minutes
    for stop in path.stops:
        assert set(stop.pages) <= {page.title for page in find(stop.lesson).pages}
    lesson = along(minutes)
    w = LessonProgress.of(lesson)
    assert w.length == len(lesson.pages) == sum(len(stop.pages) for stop in path.stops)
    assert all(page.note for page in lesson.pages), "each page of a lecture has a note for whoever gives it"
    with pytest.raises(UsageProblem, match="no path of 30 minutes"):
        along(30)


@pytest.mark.parametrize(("asked", "name"), [
    ("3", "greedy"), ("Greedy", "greedy"), ("self-spec", "admg"), ("rest", "rest")])
def test_a_lesson_is_found_by_number_and_by_words_of_its_title(asked, name):
    assert find(asked).name == name


@pytest.mark.parametrize(("asked", "says"), [
    ("0", "no lesson"), ("15", "no lesson"), ("", "no lesson"), ("draft", None), ("²", "no lesson"),
    ("Acceptance", "several lessons have 'Acceptance'")])
def test_a_lesson_that_is_not_there_or_not_told_apart(asked, says):
    if says is None:
        assert find(asked).name == asked, "a name goes before titles"
        return
    with pytest.raises(UsageProblem, match=says) as problem:
        find(asked)
    assert "greedy" in problem.value.hint
