"""The application over what was recorded: a trace, several side by side, the lessons."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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


def replay(
    client: ReplayClient, screen: str = "chat", theme: str | None = None, presenter: bool = False,
    rejected: bool = False,
) -> SpecTui:
    """The application over a trace; it begins on the screen "chat" or "step". Raises UsageProblem for an unknown
    theme, as the others do."""
    check_theme(theme)
    return SpecTui(client, LoadRequest(), theme=theme, presenter=presenter, rejected=rejected, step=screen == "step")


def race(
    recorded: RaceState, speed: float | None = None, theme: str | None = None, presenter: bool = False,
    rejected: bool = False,
) -> SpecTui:
    """The race screen over recorded runs; ``speed`` is as in ``RaceController``."""
    from spec_tui.tui.screens.race import RaceScreen

    return _without_engine(lambda session: RaceScreen(session, recorded, speed), theme, presenter, rejected)


def lessons(progress: LessonProgress | None = None, theme: str | None = None, presenter: bool = False) -> SpecTui:
    """The lessons, with one open where a progress is given."""
    from spec_tui.tui.screens.lessons import LessonsScreen

    return _without_engine(lambda session: LessonsScreen(progress), theme, presenter)


def class_room(
    progress: LessonProgress, leads: bool, tell: Tell, theme: str | None = None, presenter: bool = False
) -> SpecTui:
    """A session of a class; the arguments are those of ``ClassScreen``."""
    from spec_tui.tui.screens.led_lesson import ClassScreen

    return _without_engine(lambda session: ClassScreen(progress, leads, tell), theme, presenter)


def _without_engine(
    first: Callable[[ChatSession], Screen], theme: str | None, presenter: bool, rejected: bool = False
) -> SpecTui:
    check_theme(theme)
    return SpecTui(ReplayClient(Trace(())), LoadRequest(), theme=theme, presenter=presenter, rejected=rejected,
                   first=first)
