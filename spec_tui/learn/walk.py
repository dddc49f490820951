"""Going through a lesson: page by page, a guess, what the run says. The screen only draws it; ``told`` is for screen
readers, and for where there is no screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from engines.report.run_state import RunState
from spec_tui.learn.lesson import Lesson, Page, names, terms
from spec_tui.learn.lesson_facts import Fact, of_round, of_run, pick
from spec_tui.learn.templates import Missing, fill, holds, paragraphs
from spec_tui.present.narration import round_words
from spec_tui.present.step.phases import StepPosition, event_of, phases_of


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


# -- without a screen -------------------------------------------------------------------------------
def told(walk: Walk, asks: Callable[[str], str] | None = None) -> Iterator[str]:
    """The whole lesson. With ``asks`` the learner is asked; without, the question is followed by its answer."""
    yield f"Lesson {names().index(walk.lesson.name) + 1}: {walk.lesson.title}"
    while True:
        view = walk.view()
        yield ""
        yield f"{walk.at + 1} of {walk.length}: {view.title}"
        yield _where(view)
        yield from view.paragraphs
        known = [f"{term}: {terms()[term]}" for term in view.terms]
        yield from (["Words: " + " ".join(known)] if known else [])
        yield from ([f"Read on: {view.see}"] if view.see else [])
        if view.asks:
            yield from _question(walk, view, asks)
        elif not walk.forward():
            return


def _where(view: View) -> str:
    """What stands beside the text: the run, and its round in words; of a question only what is drafted."""
    event = event_of(view.run, view.place.round)
    if event is None:
        return f"Shown: {view.name}, the prefill"
    if view.asks:
        return f"Shown: {view.name}, round {event.index}: drafted {len(event.draft.tokens)}"
    return f"Shown: {view.name}, {round_words(event)}; phase {view.place.phase}"


def _question(walk: Walk, view: View, asks: Callable[[str], str] | None) -> Iterator[str]:
    """The choices, then the guess; behind it the walk stands where the run tells."""
    yield from (f"{number}: {words}" for number, words in enumerate(view.options, 1))
    least, most = (1, len(view.options)) if view.options else (0, view.most)
    line = asks(f"Your guess, {least} to {most}: ").strip() if asks is not None else ""
    while line and not (line.isdecimal() and len(line) < 9 and walk.guess(int(line))):
        line = asks(f"A number from {least} to {most}, please: ").strip()
    if not line:
        right = walk.right()
        yield f"Answer: {view.options[right - 1] if view.options else right}"
        walk.tell()
