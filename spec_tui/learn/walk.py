"""Going through a lesson: page by page, a guess, what the run says. Screen and command line only draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engines.report.run_state import RunState
from spec_tui.learn.lesson import Lesson, Page
from spec_tui.learn.lesson_facts import Fact, of_round, of_run
from spec_tui.learn.round_selectors import pick
from spec_tui.learn.templates import Missing, fill, holds, paragraphs
from spec_tui.present.step.phases import StepPosition, phases_of


@dataclass(frozen=True, slots=True)
class View:
    """What is to be shown: text, and the place that it speaks of.

    Attributes:
        run: the run, ``name`` that of its trace.
        options: the choices of a question.
        most: the largest number that can be guessed; None where no number is asked for.
        verdict: whether the guess was right; None before one.
    """

    title: str
    paragraphs: tuple[str, ...]
    run: RunState
    name: str
    place: StepPosition
    terms: tuple[str, ...] = ()
    see: str = ""
    options: tuple[str, ...] = ()
    most: int | None = None
    verdict: bool | None = None

    @property
    def asks(self) -> bool:
        """Whether this is the question."""
        return bool(self.options) or self.most is not None


class Walk:
    """A lesson over runs, and where the learner is in it.

    Args:
        lesson: what is taught.
        runs: the runs that it names.

    Attributes:
        pages: the pages that the runs have a round and all facts for; of the shipped runs that is every page.
        at: index of the page; behind the last one comes the question, behind that what the run says.
        said: the guess, None before one.
    """

    def __init__(self, lesson: Lesson, runs: Mapping[str, RunState]) -> None:
        self.lesson, self.runs = lesson, runs
        self._facts = {name: of_run(run) for name, run in runs.items()}
        self.pages = [page for page in lesson.pages if self._fits(page)]
        self.asking = self._fits(lesson.question.page) and self._fits(lesson.question.reveal)
        self.at = 0
        self.said: int | None = None

    @property
    def length(self) -> int:
        """Pages, the question and its answer."""
        return len(self.pages) + 2 * self.asking

    def forward(self) -> bool:
        """The next page. False at the end, and at a question without a guess."""
        if self.at + 1 >= self.length or (self.at == len(self.pages) and self.said is None):
            return False
        self.at += 1
        return True

    def back(self) -> bool:
        """The page before. False at the beginning."""
        self.at = max(0, self.at - 1)
        return self.at > 0

    def guess(self, said: int) -> bool:
        """Say a number, or the number of a choice from 1 on. False where none is asked for, or none such."""
        view = self.view()
        least, most = (1, len(view.options)) if view.options else (0, view.most or 0)
        if not view.asks or self.said is not None or not least <= said <= most:
            return False
        self.said = said
        self.at += 1
        return True

    def tell(self) -> None:
        """What the run says, without a guess."""
        self.at = len(self.pages) + 1

    # -- what there is to see ---------------------------------------------------------------------
    def place(self, page: Page) -> StepPosition | None:
        """Where a page points at; None where the run has no such round."""
        run = self._run(page)
        number = pick(run, page.round)
        if number is None or page.phase not in phases_of(run, number):
            return None
        return StepPosition(number, page.phase)

    def view(self) -> View:
        """The page where the learner is."""
        question = self.lesson.question
        if self.at < len(self.pages):
            return self._view(self.pages[self.at])
        if self.at > len(self.pages):
            return self._revealed()
        facts = self.facts(question.page)
        options = tuple(fill(choice.text, facts) for choice in question.choices)
        return self._view(question.page, options=options, most=int(facts[question.most]) if question.answer else None)

    def facts(self, page: Page) -> dict[str, Fact]:
        """What a page may speak of."""
        run, place = self._run(page), self.place(page)
        told = {**self._facts, "run": self._facts[self._name(page)], "round": of_round(run, place.round)}
        return {f"{whose}.{name}": value for whose, facts in told.items() for name, value in facts.items()}

    def right(self) -> int:
        """The number that the run answers with, or that of the right choice from 1 on."""
        question = self.lesson.question
        facts = self.facts(question.page)
        if question.answer:
            return int(facts[question.answer])
        return next(n for n, choice in enumerate(question.choices, 1) if holds(choice.when, facts))

    def _fits(self, page: Page) -> bool:
        """Whether a page's round and facts are in the runs."""
        try:
            return self.place(page) is not None and bool(self._view(page).paragraphs)
        except Missing:
            return False

    def _revealed(self) -> View:
        question, right = self.lesson.question, self.right()
        facts = self.facts(question.page)
        if self.said is None:
            return self._view(question.reveal)
        if self.said == right:
            words = ["You are right."]
        elif question.answer:
            words = [f"You said {self.said}; it is {right}. "
                     + fill(question.low if self.said < right else question.high, facts)]
        else:
            words = [f"Not so. {fill(question.choices[self.said - 1].wrong, facts)}"]
        return self._view(question.reveal, words, verdict=self.said == right)

    def _view(self, page: Page, before: list[str] = (), **more) -> View:
        text = (*before, *paragraphs(page.text, self.facts(page)))
        return View(page.title, text, self._run(page), self._name(page), self.place(page), page.terms, page.see, **more)

    def _name(self, page: Page) -> str:
        return page.trace or self.lesson.traces[0]

    def _run(self, page: Page) -> RunState:
        return self.runs[self._name(page)]
