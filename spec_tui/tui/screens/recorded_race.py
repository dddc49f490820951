"""The race screen over traces: the photo finish of runs that were recorded. Nothing runs, so no key starts anything."""

from __future__ import annotations

import math
from dataclasses import replace

from spec_tui.present.narration import question
from spec_tui.session.race_replay import SPEEDS
from spec_tui.session.recorded_race import RecordedRace
from spec_tui.tui.chat_session import ChatSession
from spec_tui.tui.race_controller import Moment, RaceController
from spec_tui.tui.race_setup import RaceSetup
from spec_tui.tui.screens.race import RaceScreen


class Recording(RaceController):
    """A contest that is over.

    Args:
        sitting: that of the application; no model is behind it.
        bout: the runs.
        speed: of the photo finish, the nearest that there is; infinity begins at its end; None lets it be watched.
    """

    bout: RecordedRace

    def __init__(self, sitting: ChatSession, bout: RecordedRace, speed: float | None = None) -> None:
        super().__init__(sitting)
        self.bout = bout
        self.setup = RaceSetup(bout.asked.lanes, question(bout.starts[0]), repeats=1)
        self._develop()
        if speed == math.inf:
            self.photo.skip()
        elif speed is not None:
            self.photo.speed = min(SPEEDS, key=lambda step: abs(math.log(step / speed)))

    def _develop(self) -> None:
        """Another clock where other runs are shown, and its speed stays."""
        speed = self.photo.speed if self.photo is not None else None
        super()._develop()
        if speed is not None:
            self.photo.speed = speed

    def pump(self) -> bool:
        """Nothing arrives."""
        return False

    def moment(self, lane: int) -> Moment | None:
        """As ever; but runs that were not asked the same, or not in one place, have not raced for places."""
        moment = super().moment(lane)
        return moment if moment is None or self.bout.alike else replace(moment, place=None)


class RecordedRaceScreen(RaceScreen):
    """Draws a ``Recording``; it is the first screen, so there is nothing behind it."""

    NEED_A_MODEL = frozenset({"stop", "go", "again", "add", "remove", "repeats", "mode", "prompt", "showcase", "export",
                              "copy"})

    def __init__(self, sitting: ChatSession, bout: RecordedRace, speed: float | None = None) -> None:
        super().__init__(sitting)
        self.contest = Recording(sitting, bout, speed)

    def on_mount(self) -> None:
        self.query_one("#race-ask").display = False
        self.call_after_refresh(self.changed)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return self.has_class("numbers") or self.contest.differing is not None
        return action not in self.NEED_A_MODEL and super().check_action(action, parameters)

    def action_numbers(self) -> None:
        super().action_numbers()
        self.refresh_bindings()

    def action_diff(self) -> None:
        super().action_diff()
        bout = self.contest.bout
        if self.contest.differing is None and len(bout.labels) > 1 and not bout.compared:
            pairs = bout.result.pairs
            said = ("These were all pairs that differ; other" if any(pair.at is not None for pair in pairs) else
                    "What was asked the same has the same text; other" if pairs else "The")
            self.changed(f"{said} texts were not compared: not asked the same, or not at their end.")
