"""A lesson as it is written: a file of TOML in ``lessons/``, found by its name."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from engines.errors import UsageProblem
from engines.report.run_state import RunState, fold_all
from engines.wire import read_trace
from spec_tui.session.sample_traces import trace_path

FOLDER = Path(__file__).parent / "lessons"
_TERMS = "terms.toml"


@dataclass(frozen=True, slots=True)
class Page:
    """Text beside a place of a run.

    Attributes:
        text: paragraphs with places for facts (``filling``).
        round: which round, by a name of ``picks``; ``phase`` is a phase of it.
        trace: the run, one of the lesson's; "" is its first.
        terms: words of it that ``terms`` explains.
        see: where to read on.
    """

    title: str
    text: str
    round: str
    phase: str
    trace: str = ""
    terms: tuple[str, ...] = ()
    see: str = ""


@dataclass(frozen=True, slots=True)
class AnswerChoice:
    """A possible answer: right where ``when`` holds; ``wrong`` says in a sentence why it does not."""

    text: str
    when: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Question:
    """What the learner guesses, a number or one of the choices, before the run tells.

    Attributes:
        page: the question beside what can be seen before the answer.
        reveal: the run's own numbers, beside what can be seen after it.
        answer: name of the fact that is asked for, "" where there are choices; ``most`` that of the largest guess.
        low, high: a sentence for a guess too low, and one for a guess too high.
    """

    page: Page
    reveal: Page
    answer: str = ""
    most: str = ""
    low: str = ""
    high: str = ""
    choices: tuple[AnswerChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class Lesson:
    """A few pages and a question.

    Attributes:
        traces: names of the shipped traces that it shows.
    """

    name: str
    title: str
    about: str
    traces: tuple[str, ...]
    pages: tuple[Page, ...]
    question: Question


@cache
def names() -> tuple[str, ...]:
    """The lessons in their order."""
    return tuple(path.stem.partition("-")[2] for path in _files())


def find(name: str) -> Lesson:
    """The lesson of this name. Raises UsageProblem where there is none."""
    for path in _files():
        if path.stem.partition("-")[2] == name:
            return _lesson(name, tomllib.loads(path.read_text("utf-8")))
    raise UsageProblem(f"there is no lesson {name!r}", "the lessons are: " + ", ".join(names()))


@cache
def terms() -> Mapping[str, str]:
    """Words that are explained, each in a sentence."""
    return tomllib.loads((FOLDER / _TERMS).read_text("utf-8"))


def recorded(lesson: Lesson) -> dict[str, RunState]:
    """The shipped runs of a lesson, by name."""
    return {name: fold_all(read_trace(trace_path(name)).events) for name in lesson.traces}


def _files() -> list[Path]:
    return sorted(path for path in FOLDER.glob("*.toml") if path.name != _TERMS)


def _lesson(name: str, record: dict) -> Lesson:
    pages = tuple(_page(page) for page in record["pages"])
    return Lesson(name, record["title"], record["about"], tuple(record["traces"]), pages, _question(record["question"]))


def _page(record: dict) -> Page:
    return Page(**{**record, "terms": tuple(record.get("terms", ()))})


def _question(record: dict) -> Question:
    """The reveal stands beside the question's own place unless it names another."""
    record = dict(record)
    reveal = record.pop("reveal")
    choices = tuple(AnswerChoice(**choice) for choice in record.pop("choices", ()))
    rest = {key: record.pop(key) for key in ("answer", "most", "low", "high") if key in record}
    page = _page({"title": "Your guess", **record})
    place = {"round": page.round, "phase": page.phase, "trace": page.trace, "title": "What the run says"}
    return Question(page, _page({**place, **reveal}), choices=choices, **rest)
