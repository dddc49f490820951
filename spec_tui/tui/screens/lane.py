"""One more lane of a race: an engine, its options, what it searches."""

from __future__ import annotations

from typing import ClassVar

from engines.race.lanes import Lane
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.settings import Settings


class LaneScreen(EngineScreen):
    """Gives back the lane chosen, None if closed. Sampling is the chat's, the same for all lanes."""

    CSS_PATH: ClassVar = ["modal.tcss", "engine.tcss"]
    ABOUT: ClassVar = "add a lane"
    SAMPLED: ClassVar = False

    def choose(self, settings: Settings) -> None:
        engine = settings.resolved(self.ready)
        given = dict(settings.given.get(engine, {}))
        own = settings.retrieves(self.ready) and settings.datastores != self.settings.datastores
        self.dismiss(Lane(engine, given, settings.datastores if own else ()))
