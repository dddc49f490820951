"""``spec-tui learn``: lessons, on the screen or told line by line. Recorded runs, so no model and no torch; or live."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from engines.errors import RunFailed
from engines.report.answer import Answer
from engines.report.run_state import RunState, fold_all
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Presenter, Theme
from spec_tui.learn.lesson import Lesson, find, names, recorded
from spec_tui.learn.walk import Walk
from spec_tui.present.text import sanitise
from spec_tui.session.client import LoadRequest
from spec_tui.session.replay_client import request_of

if TYPE_CHECKING:
    from spec_tui.tui.app import SpecTui


def complete_lesson(incomplete: str) -> list[str]:
    """Names of lessons that begin so, for the shell."""
    return [name for name in names() if name.startswith(incomplete)]


_LESSON = "The lesson. Without a name, the lessons are listed; on a terminal, choose one there."
_FORMAT = "screen: in the application; text: line by line, for screen readers."
_LIVE = "Run the examples on this machine first; the lesson then shows these runs, not the recorded ones."


def learn(
    lesson: Annotated[str | None, Argument(metavar="NAME", help=_LESSON, autocompletion=complete_lesson)] = None,
    format: Annotated[Literal["screen", "text"], Option("--format", help=_FORMAT)] = "screen",
    live: Annotated[bool, Option("--live", help=_LIVE)] = False,
    theme: Theme = None,
    presenter: Presenter = False,
) -> int:
    """Speculative decoding in short lessons, for readers new to the subject.

    A lesson is a few pages beside a real run, and a question that the run answers. No model is loaded, except
    with --live.
    """
    if lesson is None and (format == "text" or not (sys.stdin.isatty() and sys.stdout.isatty())):
        return _list()
    walk = None
    if lesson is not None:
        wanted = find(lesson)
        walk = Walk(wanted, _ran(wanted) if live else recorded(wanted))
        if not walk.length:
            raise RunFailed("these runs do not show what the lesson is about", "without --live it uses recorded runs")
    if format == "text":
        return _tell(walk)
    from spec_tui.cli.application import open_recorded

    def make() -> SpecTui:
        from spec_tui.tui.recorded import lessons

        return lessons(lesson or "", walk, theme, presenter)

    return open_recorded(make, "learn NAME --format text")


def _list() -> int:
    """The lessons, one a line."""
    width = max(map(len, names()))
    for number, name in enumerate(names(), 1):
        print(f"{number:>2}  {name:<{width}}  {find(name).title}: {find(name).about}")
    narrate("\nspec-tui learn NAME begins one; --format text tells it line by line.")
    return 0


def _tell(walk: Walk) -> int:
    from spec_tui.learn.walk import told

    sys.stdout.reconfigure(errors="replace")
    for line in told(walk, _ask if sys.stdin.isatty() and sys.stdout.isatty() else None):
        print(sanitise(line), flush=True)
    return 0


def _ask(words: str) -> str:
    try:
        return input(words)
    except EOFError:
        return ""


def _ran(lesson: Lesson) -> dict[str, RunState]:
    """What the lesson shows, run here and now: each once to warm up, then from empty caches. Raises SpecError."""
    from spec_tui.cli.run import load_decoder

    decoder, runs = load_decoder(LoadRequest()), {}
    for name, run in recorded(lesson).items():
        narrate(f"running {name} …")
        request = replace(request_of(run.started), detail=True)
        list(decoder.run(request))
        decoder.forget()
        decoder.forget_acceptance()
        events = list(decoder.run(request))
        runs[name] = fold_all([*events, decoder.audit(Answer.from_events(events))])
    return runs
