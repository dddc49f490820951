"""The application over several traces, side by side on the race screen."""

from __future__ import annotations

from typing import ClassVar

from textual.screen import Screen

from engines.report.traces import Trace
from spec_tui.session.client import LoadRequest
from spec_tui.session.recorded_race import RecordedRace
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.app import SpecTui, check_theme
from spec_tui.tui.screens.recorded_race import RecordedRaceScreen


class RaceReplayApp(SpecTui):
    """The application over recorded runs.

    Args:
        bout: the runs.
        speed: as in ``Recording``.
        theme: name of a theme; None takes ours.
        presenter: as in ``SpecTui``.
    """

    CSS_PATH: ClassVar = ["screens/chat.tcss", "screens/race.tcss"]  # that of the default screen Textual does not read

    def __init__(
        self, bout: RecordedRace, speed: float | None = None, theme: str | None = None, presenter: bool = False
    ) -> None:
        events = tuple(event for source in bout.sources for event in source.trace.events)
        super().__init__(ReplayClient(Trace(events)), LoadRequest(), theme=theme, presenter=presenter)
        self.session.phase = "ready"  # there is nothing to load
        self._bout, self._speed = bout, speed

    def get_default_screen(self) -> Screen:
        return RecordedRaceScreen(self.session, self._bout, self._speed)


def run_race(bout: RecordedRace, speed: float | None, theme: str | None = None, presenter: bool = False) -> int:
    """Show recorded runs side by side; the exit code."""
    check_theme(theme)
    app = RaceReplayApp(bout, speed, theme, presenter)
    app.run()
    return app.return_code or 0
