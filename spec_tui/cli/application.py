"""The application on this terminal. Imports no more than it needs, so that it paints soon."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.cli.starting import starting
from spec_tui.present.text import dumb
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.terminal_restore import restored

if TYPE_CHECKING:
    from spec_tui.tui.app import SpecTui


def open_application(
    load: LoadRequest, theme: str | None = None, asked: Request | None = None, presenter: bool = False,
    rejected: bool = False,
) -> int:
    """Run the application with an engine; ``asked`` says with which method, options and datastores it begins. Raises
    UsageProblem: there is no terminal, or no such method, option or datastore."""
    _need_terminal("run PROMPT")
    if load.model is None and load.server is None and not load.backend:
        from spec_tui.cli.model_fetch import fetch_first

        fetch_first()
    with starting():
        from spec_tui.session.kept_settings import begin_with, with_head
        from spec_tui.session.settings import check_datastores
        from spec_tui.tui.app import run_app

    kept, load = None, with_head(load)
    if asked is not None:
        asked = _of_backend(asked, load.backend)
        check_datastores(asked.datastores)
        check_engine(asked.engine, asked.options)
        load, asked, kept = begin_with(load, asked)
    with restored():
        return run_app(load, theme=theme, initial_request_options=asked, presenter=presenter, rejected=rejected,
                       kept=kept)


def _of_backend(asked: Request, backend: str) -> Request:
    """The same with the only engine of another program, where options are given without one."""
    from engines import methods

    if not asked.options or asked.engine or len(found := methods.specs(backend)) != 1:
        return asked
    return replace(asked, engine=found[0].id)


def check_engine(engine: str, options: Mapping[str, Any]) -> None:
    """Raises UsageProblem where there is no such method, or no such option of it."""
    from engines import methods

    if engine:
        methods.find(engine).parse(dict(options))
    elif options:
        raise UsageProblem("--set needs an engine", "add --engine ID; spec-tui engines lists them")


def open_recorded(make: Callable[[], SpecTui], otherwise: str) -> int:
    """Run the application over what was recorded.

    Raises:
        UsageProblem: there is no terminal; ``otherwise`` is the command that needs none.

    ``make`` imports what it needs: that takes its time.
    """
    _need_terminal(otherwise)
    with starting():
        app = make()
    with restored():
        app.run()
    return app.return_code or 0


def _need_terminal(otherwise: str) -> None:
    """Raises UsageProblem where there is no terminal, or none to draw on; ``otherwise`` is the command that needs
    none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem("the application needs a terminal", f"in a pipe or a script: spec-tui {otherwise}")
    if dumb(os.environ):  # Textual would wait for its size for ever
        raise UsageProblem(f"the application cannot draw on a terminal of the kind TERM={os.environ['TERM']}",
                           f"without drawing: spec-tui {otherwise}")
