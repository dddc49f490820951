"""The engine dialog for other ends: one more lane of a race; what is to be changed at a round."""

from __future__ import annotations

from typing import ClassVar

from engines.race.lanes import Lane
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.screens.engine import EngineScreen


class LaneScreen(EngineScreen):
    """Gives back the lane chosen, None if closed. Sampling is the chat's, the same for all lanes."""

    CSS_PATH: ClassVar = ["modal.tcss", "engine.tcss"]
    ABOUT: ClassVar = "add a lane"
    ENTER: ClassVar = "adds it"
    SAMPLED: ClassVar = False
    BUILDS: ClassVar = False

    def choose(self, settings: ChatSettings) -> None:
        engine = settings.resolved(self.ready)
        given = dict(settings.given.get(engine, {}))
        own = settings.retrieves(self.ready) and settings.datastores != self.settings.datastores
        self.dismiss(Lane(engine, given, settings.datastores if own else ()))


class ChangeScreen(EngineScreen):
    """Gives back the settings of a branch. The conversation is the same, so what it begins with is no question."""

    CSS_PATH: ClassVar = ["modal.tcss", "engine.tcss"]
    ABOUT: ClassVar = "branch: change what you like"
    ENTER: ClassVar = "runs on from here"
    SYSTEM: ClassVar = False
    BUILDS: ClassVar = False
