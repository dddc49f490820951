"""Going through a lesson: page by page, with questions that are answered before the next page. The screen only draws
it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from engines.report.run_state import RunState
from spec_tui.learn.figures import FIGURES, LessonFigure
from spec_tui.learn.lesson import Lesson, Page, recorded
from spec_tui.learn.lesson_facts import Fact, Missing, of_round, of_run, pick
from spec_tui.learn.templates import fill, holds, paragraphs
from spec_tui.present.step.phases import StepPosition, event_of, phases_of


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What is to be shown: text, and the place or the figure that it speaks of.

    Attributes:
        run: the run, ``name`` that of its trace.
        place: a place of the run; the prefill where there is a figure.
        figure: drawn in place of the run.
        options: the choices of a question, ``said`` the number of the one taken, from 1 on; None before one.
        right: the number of the right one; None before an answer, and where nothing is asked.
        note: that of the page, with its facts.
    """

    page: Page
    paragraphs: tuple[str, ...]
    run: RunState
    name: str
    place: StepPosition
    figure: LessonFigure | None = None
    options: tuple[str, ...] = ()
    said: int | None = None
    right: int | None = None
    note: str = ""

    @property
    def asks(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self.options) and self.said is None

    @property
    def hides(self) -> bool:
        """Whether what comes of the round is not told beside the text."""
        return self.asks or self.page.predicts

    @property
    def verdict(self) -> bool | None:
        """Whether the answer was right; None before one."""
        return None if self.said is None else self.said == self.right


class LessonProgress:
    """A lesson over runs, and where the learner is in it.

    Args:
        lesson: what is taught.
        runs: the runs that it names.

    Attributes:
        at: index of the page.
        answers: the choices that were taken, by the index of the page, from 1 on.
    """

    def __init__(self, lesson: Lesson, runs: Mapping[str, RunState]) -> None:
        self.lesson, self.runs = lesson, runs
        self._facts = {name: of_run(run) for name, run in runs.items()}
        self._figures: dict[Page, LessonFigure] = {}
        self.at = 0
        self.answers: dict[int, int] = {}

    @classmethod
    def of(cls, lesson: Lesson) -> Self:
        """A lesson over its shipped runs, at its beginning."""
        return cls(lesson, recorded(lesson))

    @property
    def pages(self) -> Sequence[Page]:
        """Those of the lesson."""
        return self.lesson.pages

    @property
    def length(self) -> int:
        """Pages."""
        return len(self.pages)

    @property
    def at_end(self) -> bool:
        """Whether the last page is there, and what it asks is answered."""
        return self.at + 1 == self.length and not self.view().asks

    def forward(self) -> bool:
        """The next page. False at the end, and at a question without an answer."""
        if self.at + 1 >= self.length or self.view().asks:
            return False
        self.at += 1
        return True

    def back(self) -> None:
        """The page before; at the beginning nothing changes."""
        self.at = max(0, self.at - 1)

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

    def _view(self, page: Page, said: int | None = None) -> View:
        facts, place = self.facts(page), self.place(page)
        view = View(
            page=page, paragraphs=paragraphs(page.text, facts), run=self._run(page), name=self._name(page), place=place,
            figure=self.figure(page), options=tuple(fill(choice.text, facts) for choice in page.choices),
            note=fill(" ".join(page.note.split()), facts),
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
