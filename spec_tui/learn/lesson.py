"""A lesson as it is written: a file of TOML in ``lessons/``, found by its name; and a path through several of them."""

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


class AnswerChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A possible answer: ``right``, or right where ``when`` holds of the run; ``why`` says what is wrong with it, or
    what is right."""

    text: str
    why: str
    right: bool = False
    when: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text beside a place of a run or beside a figure. A page with choices asks: what comes of them stands there after
    an answer.

    Attributes:
        text: paragraphs with places for facts (``templates``).
        round: which round, by a name of ``lesson_facts.PICKS``; ``phase`` is a phase of it. "" where there is a figure.
        figure: a name of ``figures.FIGURES``.
        trace: the run, one of the lesson's; "" is its first.
        answered: of a page that asks, the phase that is shown after the answer; "" is ``phase``.
        do: something to do on this page, in a sentence.
        predicts: the reader is to say what comes of the round: it is hidden until they go on to a phase that shows it.
        note: for whoever presents the page.
        terms: words of it that the glossary explains.
        see: where to read on.
    """

    title: str
    text: str
    round: str = ""
    phase: str = ""
    figure: str = ""
    trace: str = ""
    answered: str = ""
    choices: tuple[AnswerChoice, ...] = ()
    do: str = ""
    predicts: bool = False
    note: str = ""
    terms: tuple[str, ...] = ()
    see: str = ""


class Lesson(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A few pages, of which some ask.

    Attributes:
        traces: names of the shipped traces that it shows.
        tables: names of papers' tables that are about the same (``engines.reproduce.entry``), the first one to begin
            with.
    """

    name: str
    title: str
    about: str
    traces: tuple[str, ...]
    pages: tuple[Page, ...]
    tables: tuple[str, ...] = ()


class PathStop(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pages of a lesson on a path, by their titles; without titles all of them. ``minutes`` is what they take."""

    lesson: str
    minutes: int
    pages: tuple[str, ...] = ()


class LecturePath(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way through the lessons for a lecture."""

    about: str
    stops: tuple[PathStop, ...]


@cache
def _files() -> dict[str, Path]:
    """The lessons by name, in their order."""
    return {path.stem.partition("-")[2]: path for path in sorted(FOLDER.glob("*-*.toml"))}


def names() -> tuple[str, ...]:
    """The lessons in their order."""
    return tuple(_files())


def find(asked: str) -> Lesson:
    """The lesson of this name, of this number in the list, or the only one whose title has these words. Raises
    UsageProblem where there is none."""
    if asked in _files():
        return _read(asked)
    if asked.isdecimal() and 0 < int(asked) <= len(names()):
        return _read(names()[int(asked) - 1])
    titled = [one for one in map(_read, names()) if asked.strip() and asked.casefold() in one.title.casefold()]
    if len(titled) == 1:
        return titled[0]
    what = f"several lessons have {asked!r} in their titles" if titled else f"there is no lesson {asked!r}"
    raise UsageProblem(what, "the lessons are: " + ", ".join([one.name for one in titled] or names()))


def heading(lesson: Lesson) -> str:
    """Its title, after its number in the list where it has one."""
    number = f"Lesson {names().index(lesson.name) + 1}: " if lesson.name in names() else ""
    return number + lesson.title


def _read(name: str) -> Lesson:
    return msgspec.convert(msgspec.toml.decode(_files()[name].read_bytes()) | {"name": name}, Lesson)


@cache
def paths() -> Mapping[int, LecturePath]:
    """The ways through the lessons, by the minutes that they take."""
    found = msgspec.toml.decode((FOLDER / "paths.toml").read_bytes(), type=dict[str, LecturePath])
    return {int(minutes): path for minutes, path in found.items()}


def along(minutes: int) -> Lesson:
    """The pages of a path as one lesson. Raises UsageProblem where there is no path of so many minutes."""
    if minutes not in paths():
        raise UsageProblem(f"there is no path of {minutes} minutes", f"there are: {', '.join(map(str, paths()))}")
    path, traces, pages = paths()[minutes], {}, []
    for stop in path.stops:
        lesson = find(stop.lesson)
        traces |= dict.fromkeys(lesson.traces)
        for page in lesson.pages:
            if not stop.pages or page.title in stop.pages:
                pages.append(msgspec.structs.replace(page, trace=page.trace or lesson.traces[0]))
    return Lesson(name=f"path-{minutes}", title=f"A lecture of {minutes} minutes", about=path.about,
                  traces=tuple(traces), pages=tuple(pages))


def chosen(name: str) -> Lesson:
    """The lesson of this name, or the path of "path-45". Raises UsageProblem where there is none."""
    kind, _, minutes = name.partition("-")
    return along(int(minutes)) if kind == "path" and minutes.isdecimal() else find(name)


def recorded(lesson: Lesson) -> dict[str, RunState]:
    """The shipped runs of a lesson, by name."""
    return {name: fold_all(read_trace(trace_path(name)).events) for name in lesson.traces}
