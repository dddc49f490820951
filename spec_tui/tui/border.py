"""The border of a panel: an exception in what it draws, in a key's action or in an event ends neither the session nor
the other panels. It is said on the screen, briefly, and written to the log.

Textual ends the application for any exception, and with it go the loaded models and the conversation.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from rich.segment import Segment
from textual.app import App
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip
from textual.widget import Widget

from spec_tui.present.text import one_line
from spec_tui.present.token_styles import FAILED
from spec_tui.session.log import open_log

LOG = "application"
_SHOWN = 90  # characters of an error's own words
_MARK = "_drawing_is_contained"

Drawing = Callable[[Any, Region], list[Strip]]


class HasBorder(App):
    """An application that goes on after an exception in one of its panels.

    Attributes:
        contains: whether it goes on; else Textual ends it.
        faults: what was said of exceptions so far, each once.
    """

    contains = True

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.faults: list[str] = []
        _install()

    async def _dispatch_action(self, namespace, action_name, params) -> bool:
        try:
            return await super()._dispatch_action(namespace, action_name, params)
        except Exception as error:
            if not self.contains:
                raise
            self.tell(error, f"{action_name.replace('_', ' ')} failed")
            return True

    def tell(self, error: Exception, what: str) -> None:
        """Say on the screen what went wrong, and write it to the log."""
        if self.noted(said := words(error, what), error):
            self.notify(said, title="an error of this program", severity="error", markup=False)

    def noted(self, said: str, error: Exception) -> bool:
        """Write an exception to the log, each once; whether it was new."""
        if said in self.faults:
            return False
        self.faults.append(said)
        if (log := open_log(LOG)) is not None:
            with log:
                lines = traceback.format_tb(error.__traceback__)  # without the error's words: a prompt may be in them
                log.write(f"{type(error).__name__}\n{''.join(lines)}\n".encode("utf-8", "backslashreplace"))
        return True


def words(error: Exception, what: str) -> str:
    """An exception in a line."""
    return f"{what}: {one_line(f'{type(error).__name__}: {error}', _SHOWN)}; the log has more (spec-tui doctor)"


def said_instead(app: App, error: Exception) -> str:
    """What stands in a panel that cannot be drawn; an application that does not go on raises the exception again."""
    if not getattr(app, "contains", False):
        raise error
    app.noted(said := words(error, "this panel cannot be drawn"), error)
    return f"{FAILED} {said}"


def contained(drawing: Drawing) -> Drawing:
    """``render_lines`` of a widget that shows what went wrong instead of ending the application."""
    if getattr(drawing, _MARK, False):
        return drawing

    @wraps(drawing)
    def draw(widget: Any, crop: Region) -> list[Strip]:
        try:
            return drawing(widget, crop)
        except Exception as error:
            return _instead(said_instead(widget.app, error), crop)

    setattr(draw, _MARK, True)
    return draw


def _instead(said: str, crop: Region) -> list[Strip]:
    """The lines of a panel that cannot be drawn: what is to be said of it, and nothing."""
    rows = [said[start : start + crop.width] for start in range(0, len(said), max(1, crop.width))]
    return [Strip([Segment(rows[y] if y < len(rows) else "")]).adjust_cell_length(crop.width)
            for y in range(crop.y, crop.bottom)]


def _install() -> None:
    """Put the border around Textual's own widgets, and around the dispatch of every event. Once for the process."""
    if getattr(Widget.render_lines, _MARK, False):
        return
    Widget.render_lines = contained(Widget.render_lines)
    MessagePump._dispatch_message = _dispatched(MessagePump._dispatch_message)


def _dispatched(dispatch: Callable[[Any, Message], Awaitable[None]]) -> Callable[[Any, Message], Awaitable[None]]:
    """Takes an event to its handlers; an exception would end the widget's own loop, and the application."""

    @wraps(dispatch)
    async def taken(pump: MessagePump, message: Message) -> None:
        try:
            await dispatch(pump, message)
        except Exception as error:
            app = pump.app
            if not getattr(app, "contains", False) or not app.is_running:
                raise
            app.tell(error, f"{type(message).__name__.lower()} in {pump.id or type(pump).__name__}")

    return taken
