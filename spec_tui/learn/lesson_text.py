"""A lesson line by line, for screen readers, and for where there is no screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engines.report.wording import between
from spec_tui.learn.glossary_entries import explained
from spec_tui.learn.lesson import heading
from spec_tui.learn.lesson_progress import LessonProgress, View
from spec_tui.learn.pictures import MARKS, READING, caption, picture
from spec_tui.learn.sources import sources
from spec_tui.present.narration import round_words
from spec_tui.present.rows import words_of
from spec_tui.present.step.phases import event_of, title_of

WIDE, HIGH = 76, 12  # of a picture in text


def lesson_lines(
    progress: LessonProgress, asks: Callable[[str], str] | None = None, notes: bool = False
) -> Iterator[str]:
    """The whole lesson, line by line. With ``asks`` the learner answers each question where it stands; without, the
    questions stand in the text and their answers after the last page. ``notes`` adds the presenter's."""
    yield heading(progress.lesson)
    yield from (*READING, MARKS)
    answers: list[int] = []
    seen: set[str] = set()
    for at in range(progress.length):
        progress.at = at
        view = progress.view()
        yield from ("", f"{progress.at + 1} of {progress.length}: {view.page.title}")
        yield from (*_shown(view, seen), *view.paragraphs)
        if view.page.terms:
            yield "Words: " + " ".join(f"{term}: {explained(term)}" for term in view.page.terms)
        yield from ([f"Presenter: {view.note}"] if notes and view.note else [])
        yield from ([f"Read on: {view.page.see}"] if view.page.see else [])
        if not view.options:
            continue
        yield from (f"  {n}: {words}" for n, words in enumerate(view.options, 1))
        if asks is not None and _asked(progress, view, asks):
            done = progress.view()
            yield from ("Right." if done.verdict else "Not so.", *done.paragraphs)
        else:
            answers.append(progress.at)
    if answers:
        yield from ("", "Answers")
    for at in answers:
        page = progress.pages[at]
        right = progress.right(page)
        yield f"{at + 1}, {page.title}: {right}. {progress.filled(page, page.choices[right - 1].why)}"
    if cited := sources(progress.lesson):
        yield from ("", "Sources", *(one.words for one in cited))


def _shown(view: View, seen: set[str]) -> Iterator[str]:
    """What stands beside the text: the figure, or the run and its round in words and as a picture; of a question or a
    prediction what is drafted."""
    event = event_of(view.run, view.place.round)
    if view.figure is not None:
        yield f"Figure: {view.figure.title}"
    yield from filter(None, [caption(view, seen)])
    if view.figure is None and event is not None and not view.hides:
        yield f"Shown: {round_words(event)}; phase {title_of(view.run, view.place)}"
    yield from (words_of(row) for row in picture(view, WIDE, HIGH))


def _asked(progress: LessonProgress, view: View, asks: Callable[[str], str]) -> bool:
    """Ask until there is an answer; False where the learner passes."""
    numbers = between(1, len(view.options))
    line = asks(f"Your answer, {numbers} (enter skips): ").strip()
    while line and not (line.isdecimal() and len(line) < 9 and progress.answer(int(line))):
        line = asks(f"A number, {numbers}, please: ").strip()
    return bool(line)
