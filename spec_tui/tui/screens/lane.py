"""The engine dialog for other ends: one more lane of a race; what is to be changed at a round."""

from __future__ import annotations

from typing import ClassVar

from engines.methods import find
from engines.methods.spec import MethodSpec
from engines.race.forecast import has_llama_cpp
from engines.race.lanes import Lane
from spec_tui.session.host_access import HostAccess
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.race_controller import LLAMA_CPP
from spec_tui.tui.screens.engine import EngineScreen


class LaneScreen(EngineScreen):
    """Gives back the lane chosen, None if closed. Sampling is the chat's, the same for all lanes."""

    ABOUT: ClassVar = "add a lane"
    ENTER: ClassVar = "adds it"
    SAMPLED: ClassVar = False

    @property
    def _offered(self) -> tuple[MethodSpec, ...]:
        here = HostAccess.here().whole and has_llama_cpp(self.ready)
        return (*super()._offered, *([find(LLAMA_CPP)] if here else []))

    def unavailable(self, spec: MethodSpec, settings: ChatSettings | None = None) -> str:
        return "" if spec.id == LLAMA_CPP else super().unavailable(spec, settings)

    def choose(self, settings: ChatSettings) -> None:
        engine = self.chosen
        given = dict(settings.given.get(engine, {}))
        own = settings.retrieves(self.ready) and settings.datastores != self.settings.datastores
        self.dismiss(Lane(engine, given, settings.datastores if own else ()))


class ChangeScreen(EngineScreen):
    """Gives back the settings of a branch. The conversation is the same, so what it begins with is no question."""

    ABOUT: ClassVar = "branch: change engine, options"
    ENTER: ClassVar = "continues here"
    SYSTEM: ClassVar = False
