"""The application over what was recorded: a trace, several side by side, the lessons."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypedDict, Unpack

from textual.screen import Screen

from engines.report.traces import Trace
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.race_state import RaceState
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.app import SpecTui, check_theme

if TYPE_CHECKING:
    from spec_tui.tui.screens.led_lesson import Tell


class Looks(TypedDict, total=False):
    """How the application looks; see ``SpecTui``."""

    theme: str | None
    presenter: bool
    rejected: bool


def replay(client: ReplayClient, screen: str = "chat", **looks: Unpack[Looks]) -> SpecTui:
    """The application over a trace; it begins on the screen "chat" or "step". Raises UsageProblem for an unknown
    theme, as the others do."""
    check_theme(looks.get("theme"))
    return SpecTui(client, LoadRequest(), step=screen == "step", **looks)


def race(recorded: RaceState, speed: float | None = None, **looks: Unpack[Looks]) -> SpecTui:
    """The race screen over recorded runs; ``speed`` is as in ``RaceController``."""
    from spec_tui.tui.screens.race import RaceScreen

    return _without_engine(lambda session: RaceScreen(session, recorded, speed), looks)


def lessons(progress: LessonProgress | None = None, **looks: Unpack[Looks]) -> SpecTui:
    """The lessons, with one open where a progress is given."""
    from spec_tui.tui.screens.lessons import LessonsScreen

    return _without_engine(lambda session: LessonsScreen(progress), looks)


def class_room(progress: LessonProgress, leads: bool, tell: Tell, **looks: Unpack[Looks]) -> SpecTui:
    """A session of a class; the arguments are those of ``ClassScreen``."""
    from spec_tui.tui.screens.led_lesson import ClassScreen

    return _without_engine(lambda session: ClassScreen(progress, leads, tell), looks)


def _without_engine(first: Callable[[ChatSession], Screen], looks: Looks) -> SpecTui:
    check_theme(looks.get("theme"))
    return SpecTui(ReplayClient(Trace(())), LoadRequest(), first=first, **looks)
