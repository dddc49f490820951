"""A lesson as it is written: a file of TOML in ``lessons/``, found by its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from engines.errors import UsageProblem
from engines.report.run_state import RunState, fold_all
from engines.wire import read_trace
from spec_tui.session.sample_traces import trace_path

FOLDER = Path(__file__).parent / "lessons"


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text beside a place of a run.

    Attributes:
        text: paragraphs with places for facts (``templates``).
        round: which round, by a name of ``lesson_facts.PICKS``; ``phase`` is a phase of it.
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


class AnswerChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A possible answer: right where ``when`` holds; ``wrong`` says in a sentence why it does not."""

    text: str
    when: str
    wrong: str


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class Lesson(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
def _files() -> dict[str, Path]:
    """The lessons by name, in their order."""
    return {path.stem.partition("-")[2]: path for path in sorted(FOLDER.glob("*-*.toml"))}


def names() -> tuple[str, ...]:
    """The lessons in their order."""
    return tuple(_files())


def find(name: str) -> Lesson:
    """The lesson of this name. Raises UsageProblem where there is none."""
    if name not in _files():
        raise UsageProblem(f"there is no lesson {name!r}", "the lessons are: " + ", ".join(names()))
    record = msgspec.toml.decode(_files()[name].read_bytes())
    # The place of a question is written beside its answers, and what the run says stands at the same place unless it
    # names another.
    question = record["question"]
    place = {key: question.pop(key) for key in ("round", "phase", "trace") if key in question}
    page = {key: question.pop(key) for key in ("title", "text", "terms", "see") if key in question}
    question["page"] = {"title": "Your guess", **place, **page}
    question["reveal"] = {"title": "What the run says", **place, **question["reveal"]}
    return msgspec.convert(record | {"name": name}, Lesson)


@cache
def terms() -> Mapping[str, str]:
    """Words that are explained, each in a sentence."""
    return msgspec.toml.decode((FOLDER / "terms.toml").read_bytes())


def recorded(lesson: Lesson) -> dict[str, RunState]:
    """The shipped runs of a lesson, by name."""
    return {name: fold_all(read_trace(trace_path(name)).events) for name in lesson.traces}
