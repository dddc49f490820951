"""``spec-tui`` without a command: the application. Imports no more than it needs, so that it paints soon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.report.traces import Trace
    from spec_tui.export.formats import ExportOptions
    from spec_tui.learn.walk import Walk
    from spec_tui.session.race_state import RaceState
    from spec_tui.tui.app import SpecTui


def open_application(
    load: LoadRequest, theme: str | None = None, datastores: tuple[str, ...] = (), presenter: bool = False
) -> int:
    """Run the application on this terminal. Raises UsageProblem where there is none, or no datastore of a name."""
    _need_terminal("in a pipe or a script: spec-tui run PROMPT")
    from spec_tui.session.settings import check_datastores
    from spec_tui.tui.app import run_app

    check_datastores(datastores)

    with _terminal_as_it_was():
        asked = Request((), datastores=datastores)
        return run_app(load, theme=theme, initial_request_options=asked, presenter=presenter)


def open_replay(
    trace: Trace, name: str, speed: float, screen: str = "chat", theme: str | None = None, presenter: bool = False
) -> int:
    """Play a trace in the application, on this terminal. Raises UsageProblem where there is none."""
    _need_terminal("in a pipe or a script: spec-tui replay FILE --format text")
    from spec_tui.session.replay_client import ReplayClient
    from spec_tui.tui import recorded

    return _run(recorded.replay(ReplayClient(trace, speed, title=name), screen, theme, presenter))


def open_recorded(
    race: RaceState, speed: float | None, theme: str | None = None, presenter: bool = False
) -> int:
    """Recorded runs side by side, on this terminal. Raises UsageProblem where there is none."""
    _need_terminal("in a pipe or a script: spec-tui replay FILE --format text, one after the other")
    from spec_tui.tui import recorded

    return _run(recorded.race(race, speed, theme, presenter))


def open_lessons(begin: str, walk: Walk | None, theme: str | None = None, presenter: bool = False) -> int:
    """The lessons on this terminal, one of them open if it is named. Raises UsageProblem where there is none."""
    _need_terminal("in a pipe or a script: spec-tui learn NAME --format text")
    from spec_tui.tui import recorded

    return _run(recorded.lessons(begin, walk, theme, presenter))


def draw_picture(trace: Trace, name: str, options: ExportOptions) -> str:
    """The application's screen at the end of a trace, as SVG. Raises UsageProblem where there is no such theme."""
    from spec_tui.tui.picture import picture

    return picture(trace, name, options.size or (120, 40), options.theme)


def _run(app: SpecTui) -> int:
    with _terminal_as_it_was():
        app.run()
    return app.return_code or 0


def _need_terminal(otherwise: str) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem("the application needs a terminal", otherwise)


@contextmanager
def _terminal_as_it_was() -> Iterator[None]:
    """Puts the terminal's settings back, whatever the application did: Textual takes its own raw mode for the
    original after the process was stopped and continued from outside."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    settings = termios.tcgetattr(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
