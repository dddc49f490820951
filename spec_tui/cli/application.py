"""``spec-tui`` without a command: the application. Imports no more than it needs, so that it paints soon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.session.client import LoadRequest


def open_application(load: LoadRequest, theme: str | None = None, datastores: tuple[str, ...] = ()) -> int:
    """Run the application on this terminal. Raises UsageProblem where there is none, or no datastore of a name."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem("the application needs a terminal", "in a pipe or a script: spec-tui run PROMPT")
    from spec_tui.tui.app import run_app
    from spec_tui.tui.settings import check_datastores

    check_datastores(datastores)

    with _terminal_as_it_was():
        return run_app(load, theme=theme, initial_request_options=Request((), datastores=datastores))


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
