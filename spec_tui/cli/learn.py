"""``spec-tui learn``: lessons, on the screen, told line by line, or as a page to print. Recorded runs, so no model and
no torch; or live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from engines.errors import RunFailed, UsageProblem
from engines.folders import typed_path
from engines.report.answer import Answer
from engines.report.run_state import RunState, fold_all
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Only, Presenter, Theme
from spec_tui.learn.lesson import Lesson, along, find, names, paths, recorded
from spec_tui.present.text import sanitise
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.replay_client import request_of

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
_OF_LESSONS = Only(lambda given: bool(given["lessons"] or given["path"]), "a lesson that is named, or a path")


def complete_lesson(incomplete: str) -> list[str]:
    """Names of lessons that begin so, for the shell."""
    return [name for name in (*names(), EXPORT) if name.startswith(incomplete)]


_LESSON = f"The lesson: its name, its number, or words of its title. Without one, the lessons are listed; on a \
terminal, choose one there. {EXPORT} writes a handout to read or print: all lessons, or those named after it."
_FORMAT = "screen: in the application; text: line by line, for screen readers: questions first, answers after."
_PATH = "Go through selected pages of several lessons: a lecture of 15 or 45 minutes."
_NOTES = "With --format text and export: add the presenter's notes. On the screen T shows them."
_OUTPUT = "With export: the file to write; - is standard output."
_LIVE = "Run the examples on this machine first; the lesson then shows these runs, not the recorded ones."


def learn(
    lessons: Annotated[list[str] | None, Argument(metavar="NAME", help=_LESSON, autocompletion=complete_lesson)] = None,
    format: Annotated[Literal["screen", "text"], Option("--format", help=_FORMAT), Only(
        lambda given: not _exporting(given), "lessons on the screen or as text")] = "screen",
    path: Annotated[int | None, Option("--path", metavar="MINUTES", help=_PATH)] = None,
    notes: Annotated[bool, Option("--notes", help=_NOTES), _OF_TEXT] = False,
    output: Annotated[str, Option("--output", "-o", metavar="FILE|-", help=_OUTPUT), _OF_EXPORT] = "lessons.html",
    force: Annotated[bool, Option("--force", help="Overwrite the file if it exists."), _OF_EXPORT] = False,
    list_lessons: Annotated[bool, Option("--list", help="List the lessons, one per line.")] = False,
    live: Annotated[bool, Option("--live", help=_LIVE), _OF_LESSONS] = False,
    theme: Annotated[Theme, _OF_SCREEN] = None,
    presenter: Annotated[Presenter, _OF_SCREEN] = False,
) -> int:
    """Speculative decoding in short lessons, for readers new to the subject.

    A lesson is a few pages with real runs, figures to change and questions. No model is loaded, except with --live.
    """
    if list_lessons:
        return _list()
    named = list(lessons or ())
    exporting = named[:1] == [EXPORT]
    wanted = [along(path)] if path is not None else [find(name) for name in named[exporting:]]
    if path is not None and named[exporting:]:
        raise UsageProblem("a path has its own lessons", "leave out the names, or --path")
    if exporting:
        return _export([_progress(lesson, live) for lesson in wanted or map(find, names())], output, force, notes)
    if not wanted and (format == "text" or not (sys.stdin.isatty() and sys.stdout.isatty())):
        return _list()
    if len(wanted) > 1:
        raise UsageProblem("one lesson at a time", f"several are for learn {EXPORT}")
    progress = _progress(wanted[0], live) if wanted and (live or format == "text") else None
    if format == "text":
        return _tell(progress, notes)
    from spec_tui.cli.application import open_recorded

    def make() -> SpecTui:
        from spec_tui.tui.recorded import lessons

        return lessons(progress or (_progress(wanted[0], live) if wanted else None), theme, presenter)

    return open_recorded(make, "learn NAME --format text")


def _progress(lesson: Lesson, live: bool) -> LessonProgress:
    """A lesson over its runs. Raises SpecError."""
    from spec_tui.learn.lesson_progress import LessonProgress

    progress = LessonProgress(lesson, _ran(lesson) if live else recorded(lesson))
    if not progress.length:
        raise RunFailed("these runs do not show what the lesson is about", "without --live it uses recorded runs")
    if left := len(lesson.pages) - progress.length:
        narrate(f"note: {left} of {len(lesson.pages)} pages are left out: these runs do not show what they are about")
    if live:
        from spec_tui.learn.recordings import doubts

        for words in doubts(progress):
            narrate(f"note: the machine was disturbed, so the race may mislead: {words}")
    return progress


def _list() -> int:
    """The lessons, one a line."""
    width = max(map(len, names()))
    for number, name in enumerate(names(), 1):
        print(f"{number:>2}  {name:<{width}}  {find(name).title}: {find(name).about}")
    minutes = " or ".join(f"--path {minutes}" for minutes in paths())
    narrate(f"\nspec-tui learn NAME begins one, {minutes} a lecture; --format text prints it line by line.")
    return 0


def _tell(progress: LessonProgress, notes: bool) -> int:
    from spec_tui.learn.lesson_text import lesson_lines

    sys.stdout.reconfigure(errors="replace")
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
    from spec_tui.cli.export import write_document
    from spec_tui.export.handout import handout

    target = None if output == "-" else typed_path(output)
    if target is not None and target.exists() and not force:
        raise UsageProblem(f"{target} exists", "name another file with --output, or give --force")
    title = taken[0].lesson.title if len(taken) == 1 else "Speculative decoding in short lessons"
    document = handout(title, taken, notes)
    write_document(target, document, force)
    return 0


def _ran(lesson: Lesson) -> dict[str, RunState]:
    """What the lesson shows, run here and now: each once to warm up, then from empty caches. Raises SpecError."""
    from spec_tui.cli.run import load_decoder

    decoders, runs = {}, {}
    for name, run in recorded(lesson).items():
        model = _model_for(run.started.model)
        if model not in decoders:
            decoders.clear()  # one model in memory at a time
            decoders[model] = load_decoder(LoadRequest(model=model))
        decoder = decoders[model]
        narrate(f"running {name} …")
        request = replace(request_of(run.started), detail=True)
        list(decoder.run(request))
        decoder.forget()
        decoder.forget_acceptance()
        events = list(decoder.run(request))
        runs[name] = fold_all([*events, decoder.audit(Answer.from_events(events))])
    return runs


def _model_for(recorded_with: str) -> str:
    """The model to run an example with: the one that it was recorded with, else the sample pair."""
    from engines.hub import known_models, local_models

    here = {facts["name"]: facts["path"] is not None for facts in local_models.known()}
    if here.get(recorded_with):
        return recorded_with
    if recorded_with in here:
        narrate(f"note: {recorded_with} is not here, so the sample pair runs its examples (spec-tui model get "
                f"{recorded_with})")
    return known_models.SAMPLE
