"""``spec-tui learn``: lessons, on the screen, told line by line, or as a page to print. Recorded runs, so no model and
no torch."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from engines.errors import UsageProblem
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Alone, Lecture, Only, Presenter, Theme
from spec_tui.cli.output import console, table
from spec_tui.learn.lesson import Lesson, along, find, names, paths
from spec_tui.present.text import sanitise

if TYPE_CHECKING:
    from spec_tui.learn.lesson_progress import LessonProgress
    from spec_tui.tui.app import SpecTui

EXPORT = "export"


def _exporting(given: Mapping[str, Any]) -> bool:
    return (given["lessons"] or ())[:1] == [EXPORT]


def _on_screen(given: Mapping[str, Any]) -> bool:
    return given["format"] == "screen" and not _exporting(given)


_OF_EXPORT, _OF_SCREEN = Only(_exporting, f"learn {EXPORT}"), Only(_on_screen, "lessons on the screen")
_OF_TEXT = Only(lambda given: not _on_screen(given), f"--format text and learn {EXPORT}; on the screen T shows them")


def complete_lesson() -> list[str]:
    """The names of lessons, for the shell."""
    return [*names(), EXPORT]


_LESSON = f"The lesson: its name, its number, or words of its title. Without one, the lessons are listed; on a \
terminal, choose one there. {EXPORT} writes a handout to read or print: all lessons, or those named after it."
_FORMAT = "screen: in the application; text: line by line, for screen readers: questions first, answers after."
_NOTES = "With --format text and export: add the presenter's notes. On the screen T shows them."
_OUTPUT = "With export: the file to write; - is standard output."


def learn(
    lessons: Annotated[list[str] | None, Argument(metavar="NAME", help=_LESSON, autocompletion=complete_lesson)] = None,
    format: Annotated[Literal["screen", "text"], Option("--format", help=_FORMAT), Only(
        lambda given: not _exporting(given), "lessons on the screen or as text")] = "screen",
    path: Lecture = None,
    notes: Annotated[bool, Option("--notes", help=_NOTES), _OF_TEXT] = False,
    output: Annotated[str, Option("--output", "-o", metavar="FILE|-", help=_OUTPUT), _OF_EXPORT] = "lessons.html",
    force: Annotated[bool, Option("--force", help="Overwrite the file if it exists."), _OF_EXPORT] = False,
    list_lessons: Annotated[bool, Option("--list", help="List the lessons, one per line."), Alone(
        frozenset({"format"}))] = False,
    theme: Annotated[Theme, _OF_SCREEN] = None,
    presenter: Annotated[Presenter, _OF_SCREEN] = False,
) -> int:
    """Speculative decoding in short lessons, for readers new to the subject.

    A lesson is a few pages with real runs, figures to change and questions. No model is loaded.
    """
    if list_lessons:
        return _list()
    named = list(lessons or ())
    exporting = named[:1] == [EXPORT]
    asked = named[1:] if exporting else [" ".join(named)] * bool(named)  # one lesson, or words of its title
    wanted = [along(path)] if path is not None else list(map(find, asked))
    if path is not None and named[exporting:]:
        raise UsageProblem("a path has its own lessons", "leave out the names, or --path")
    if exporting:
        return _export([_progress(lesson) for lesson in wanted or map(find, names())], output, force, notes)
    if not wanted and (format == "text" or not (sys.stdin.isatty() and sys.stdout.isatty())):
        return _list()
    if format == "text":
        return _tell(_progress(wanted[0]), notes)
    from spec_tui.cli.application import open_recorded

    def make() -> SpecTui:
        from spec_tui.tui.recorded import lessons

        return lessons(_progress(wanted[0]) if wanted else None, theme=theme, presenter=presenter)

    return open_recorded(make, "learn NAME --format text")


def _progress(lesson: Lesson) -> LessonProgress:
    from spec_tui.learn.lesson_progress import LessonProgress

    return LessonProgress.of(lesson)


def _list() -> int:
    console().print(table((f"{number:>2}", name, f"{find(name).title}: {find(name).about}")
                          for number, name in enumerate(names(), 1)))
    minutes = " or ".join(f"--path {minutes}" for minutes in paths())
    narrate(f"\nspec-tui learn NAME begins one, {minutes} a lecture; --format text prints it line by line.")
    return 0


def _tell(progress: LessonProgress, notes: bool) -> int:
    from spec_tui.learn.lesson_text import lesson_lines

    for line in lesson_lines(progress, _ask if sys.stdin.isatty() and sys.stdout.isatty() else None, notes):
        print(sanitise(line), flush=True)
    return 0


def _ask(words: str) -> str:
    try:
        return input(words)
    except EOFError:
        return ""


def _export(taken: list[LessonProgress], output: str, force: bool, notes: bool) -> int:
    """Write the handout. Raises UsageProblem where the file exists."""
    from spec_tui.cli.export import output_file, write_document
    from spec_tui.export.handout import handout

    target = output_file(output, force)
    title = taken[0].lesson.title if len(taken) == 1 else "Speculative decoding in short lessons"
    write_document(target, handout(title, taken, notes), force)
    return 0
