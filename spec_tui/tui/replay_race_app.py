"""The application over several traces, side by side on the race screen."""

from __future__ import annotations

from typing import ClassVar

from textual.screen import Screen

from engines.report.traces import Trace
from spec_tui.session.client import LoadRequest
from spec_tui.session.race_state import RaceState
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.app import SpecTui, check_theme
from spec_tui.tui.screens.race import RaceScreen


class RaceReplayApp(SpecTui):
    """The application over recorded runs.

    Args:
        race: the runs.
        speed: as in ``RaceController``.
        theme: name of a theme; None takes ours.
        presenter: as in ``SpecTui``.
    """

    CSS_PATH: ClassVar = ["screens/chat.tcss", "screens/race.tcss"]  # Textual does not read that of a default screen

    def __init__(
        self, race: RaceState, speed: float | None = None, theme: str | None = None, presenter: bool = False
    ) -> None:
        super().__init__(ReplayClient(Trace(())), LoadRequest(), theme=theme, presenter=presenter)
        self.session.phase = "ready"  # there is nothing to load
        self._race, self._speed = race, speed

    def get_default_screen(self) -> Screen:
        return RaceScreen(self.session, self._race, self._speed)


def run_race(race: RaceState, speed: float | None, theme: str | None = None, presenter: bool = False) -> int:
    """Show recorded runs side by side; the exit code."""
    check_theme(theme)
    app = RaceReplayApp(race, speed, theme, presenter)
    app.run()
    return app.return_code or 0
