"""Going through a lesson: page by page, with questions that are answered before the next page. The screen only draws
it; ``told`` is for screen readers, and for where there is no screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from engines.report.run_state import RunState
from spec_tui.learn.figures import FIGURES, LessonFigure
from spec_tui.learn.glossary_entries import explained
from spec_tui.learn.lesson import Lesson, Page, names
from spec_tui.learn.lesson_facts import Fact, Missing, of_round, of_run, pick
from spec_tui.learn.templates import fill, holds, paragraphs
from spec_tui.present.narration import round_words
from spec_tui.present.rows import words_of
from spec_tui.present.step.phases import StepPosition, event_of, phases_of

WIDE, HIGH = 76, 12  # of a figure in text


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is to be shown: text, and the place or the figure that it speaks of.

    Attributes:
        run: the run, ``name`` that of its trace.
        place: a place of the run; the prefill where there is a figure.
        figure: drawn in place of the run.
        options: the choices of a question, ``said`` the number of the one taken, from 1 on; None before one.
        right: the number of the right one; None before an answer, and where nothing is asked.
        do, note, terms, see: as of ``Page``.
    """

    title: str
    paragraphs: tuple[str, ...]
    run: RunState
    name: str
    place: StepPosition
    figure: LessonFigure | None = None
    options: tuple[str, ...] = ()
    said: int | None = None
    right: int | None = None
    do: str = ""
    note: str = ""
    terms: tuple[str, ...] = ()
    see: str = ""

    @property
    def asks(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self.options) and self.said is None

    @property
    def verdict(self) -> bool | None:
        """Whether the answer was right; None before one."""
        return None if self.said is None else self.said == self.right


class Walk:
    """A lesson over runs, and where the learner is in it.

    Args:
        lesson: what is taught.
        runs: the runs that it names.

    Attributes:
        pages: the pages that the runs have a round and all facts for; of the shipped runs that is every page.
        at: index of the page.
        answers: the choices that were taken, by the index of the page, from 1 on.
    """

    def __init__(self, lesson: Lesson, runs: Mapping[str, RunState]) -> None:
        self.lesson, self.runs = lesson, runs
        self._facts = {name: of_run(run) for name, run in runs.items()}
        self._figures: dict[Page, LessonFigure] = {}
        self.pages = [page for page in lesson.pages if self._fits(page)]
        self.at = 0
        self.answers: dict[int, int] = {}

    @property
    def length(self) -> int:
        """Pages."""
        return len(self.pages)

    def forward(self) -> bool:
        """The next page. False at the end, and at a question without an answer."""
        if self.at + 1 >= self.length or self.view().asks:
            return False
        self.at += 1
        return True

    def back(self) -> bool:
        """The page before. False at the beginning."""
        self.at = max(0, self.at - 1)
        return self.at > 0

    def answer(self, said: int) -> bool:
        """Take a choice, by its number from 1 on. After a wrong choice another one can be taken. Returns False where
        nothing is asked, and where there is no such choice."""
        view = self.view()
        if not (view.asks or view.verdict is False) or not 1 <= said <= len(view.options):
            return False
        self.answers[self.at] = said
        return True

    # -- what there is to see ---------------------------------------------------------------------
    def place(self, page: Page) -> StepPosition:
        """Where a page points at. Raises Missing where the run has no such round."""
        run = self._run(page)
        number = pick(run, page.round or "prefill")
        if number is None or (page.phase and page.phase not in phases_of(run, number)):
            raise Missing(f"there is no round {page.round!r}")
        return StepPosition(number, page.phase or "context")

    def view(self) -> View:
        """The page where the learner is."""
        return self._view(self.pages[self.at], self.answers.get(self.at))

    def facts(self, page: Page) -> dict[str, Fact]:
        """What a page may speak of."""
        run, place = self._run(page), self.place(page)
        told = {**self._facts, "run": self._facts[self._name(page)], "round": of_round(run, place.round)}
        return {f"{whose}.{name}": value for whose, facts in told.items() for name, value in facts.items()}

    def right(self, page: Page) -> int:
        """The number of the right choice from 1 on. Raises Missing where there is none."""
        facts = self.facts(page)
        found = [n for n, choice in enumerate(page.choices, 1)
                 if choice.right or (choice.when and holds(choice.when, facts))]
        if len(found) != 1:
            raise Missing(f"{len(found)} choices are right")
        return found[0]

    def filled(self, page: Page, text: str) -> str:
        """A text of a page with its facts. Raises Missing."""
        return fill(text, self.facts(page))

    def figure(self, page: Page) -> LessonFigure | None:
        """The figure of a page, the same one whenever the page is seen. Raises Missing."""
        if not page.figure:
            return None
        if page not in self._figures:
            run = self._run(page)
            self._figures[page] = FIGURES[page.figure](self.runs, run, event_of(run, self.place(page).round))
        return self._figures[page]

    def _fits(self, page: Page) -> bool:
        """Whether a page's round and facts are in the runs."""
        try:
            self.figure(page)
            for said in range(1, len(page.choices) + 1):
                self._view(page, said)
            return bool(self._view(page).paragraphs)
        except Missing:
            return False

    def _view(self, page: Page, said: int | None = None) -> View:
        facts, place = self.facts(page), self.place(page)
        view = View(
            title=page.title, paragraphs=paragraphs(page.text, facts), run=self._run(page), name=self._name(page),
            place=place, figure=self.figure(page), options=tuple(fill(choice.text, facts) for choice in page.choices),
            do=page.do, note=fill(" ".join(page.note.split()), facts), terms=page.terms, see=page.see,
        )
        if not page.choices or said is None:
            return view
        right = self.right(page)
        told = [fill(page.choices[said - 1].why, facts)]
        if said != right:
            told.append(f"Right is {right}: {view.options[right - 1].rstrip('.')}. "
                        + fill(page.choices[right - 1].why, facts))
        phase = page.answered if page.answered in phases_of(view.run, place.round) else place.phase
        return replace(view, paragraphs=tuple(told), said=said, right=right, place=StepPosition(place.round, phase))

    def _name(self, page: Page) -> str:
        return page.trace or self.lesson.traces[0]

    def _run(self, page: Page) -> RunState:
        return self.runs[self._name(page)]


# -- without a screen -------------------------------------------------------------------------------
def told(walk: Walk, asks: Callable[[str], str] | None = None, notes: bool = False) -> Iterator[str]:
    """The whole lesson, line by line. With ``asks`` the learner answers each question where it stands; without, the
    questions stand in the text and their answers after the last page. ``notes`` adds the presenter's."""
    number = names().index(walk.lesson.name) + 1 if walk.lesson.name in names() else 0
    yield f"Lesson {number}: {walk.lesson.title}" if number else walk.lesson.title
    answers = []
    for at in range(walk.length):
        walk.at = at
        view = walk.view()
        yield from ("", f"{walk.at + 1} of {walk.length}: {view.title}", *_shown(view), *view.paragraphs)
        if view.figure is None and view.do:
            yield "On the screen: " + view.do
        if view.terms:
            yield "Words: " + " ".join(f"{term}: {explained(term)}" for term in view.terms)
        yield from ([f"Presenter: {view.note}"] if notes and view.note else [])
        yield from ([f"Read on: {view.see}"] if view.see else [])
        if not view.options:
            continue
        yield from (f"  {n}: {words}" for n, words in enumerate(view.options, 1))
        if asks is not None and _asked(walk, view, asks):
            done = walk.view()
            yield from ("Right." if done.verdict else "Not so.", *done.paragraphs)
        else:
            answers.append(walk.at)
    if answers:
        yield from ("", "Answers")
    for at in answers:
        page = walk.pages[at]
        right = walk.right(page)
        yield f"{at + 1}, {page.title}: {right}. {walk.filled(page, page.choices[right - 1].why)}"


def _shown(view: View) -> Iterator[str]:
    """What stands beside the text: the figure, or the run and its round in words; of a question what is drafted."""
    if view.figure is not None:
        yield f"Figure: {view.figure.title}"
        yield from (words_of(row) for row in view.figure.still(WIDE, HIGH))
        return
    event = event_of(view.run, view.place.round)
    if event is None:
        yield f"Shown: {view.name}, the prefill"
    elif view.asks:
        yield f"Shown: {view.name}, round {event.index}: drafted {len(event.draft.tokens)}"
    else:
        yield f"Shown: {view.name}, {round_words(event)}; phase {view.place.phase}"


def _asked(walk: Walk, view: View, asks: Callable[[str], str]) -> bool:
    """Ask until there is an answer; False where the learner passes."""
    most = len(view.options)
    line = asks(f"Your answer, 1 to {most} (enter passes): ").strip()
    while line and not (line.isdecimal() and len(line) < 9 and walk.answer(int(line))):
        line = asks(f"A number from 1 to {most}, please: ").strip()
    return bool(line)
