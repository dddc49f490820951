"""The application as a course: the lessons, and nothing that needs a model."""

from __future__ import annotations

from textual.screen import Screen

from engines.report.traces import Trace
from spec_tui.learn.walk import Walk
from spec_tui.session.client import LoadRequest
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.app import SpecTui, check_theme
from spec_tui.tui.screens.lessons import LessonsScreen


class LearnApp(SpecTui):
    """The lessons; leaving them leaves the application.

    Args:
        begin: name of a lesson to open at once, "" for the list.
        walk: this lesson, over runs of its own.
        theme, presenter: as in ``SpecTui``.
    """

    def __init__(
        self, begin: str = "", walk: Walk | None = None, theme: str | None = None, presenter: bool = False
    ) -> None:
        super().__init__(ReplayClient(Trace(())), LoadRequest(), theme=theme, presenter=presenter)
        self._lessons = LessonsScreen(begin, walk)

    def get_default_screen(self) -> Screen:
        return Screen()

    def on_mount(self) -> None:
        super().on_mount()
        self.push_screen(self._lessons, lambda _: self.exit())


def run_lessons(begin: str, walk: Walk | None, theme: str | None, presenter: bool) -> int:
    """Run the lessons; the exit code."""
    check_theme(theme)
    app = LearnApp(begin, walk, theme, presenter)
    app.run()
    return app.return_code or 0
