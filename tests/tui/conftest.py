"""Opening the application in tests."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from rich.style import Style
from textual import _wait, app, pilot
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Input, TextArea

from engines.request import Request
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.chat import ChatScreen
from tests.tui.fakes import FakeClient

SpecTui.contains = False  # what goes wrong fails a test
ChatScreen.TYPING = 0  # tests press keys without a pause
Input.cursor_blink._default = TextArea.cursor_blink._default = False  # a clock that pictures would show

_wait_for_idle, _parse_rules = _wait.wait_for_idle, Stylesheet._parse_rules
_parsed: dict[tuple, list[RuleSet]] = {}


async def wait_for_idle(min_sleep: float = _wait.SLEEP_GRANULARITY, max_sleep: float = 1) -> None:
    """Textual's sleeps 20 ms, after every key twice. Where nothing would happen in that time, no callback of the loop,
    no timer and no other thread, it is over at once."""
    loop, soon = asyncio.get_running_loop(), _wait.SLEEP_GRANULARITY
    until = loop.time() + max_sleep
    while True:
        await asyncio.sleep(0)
        if not loop._ready:
            break
        if loop.time() > until:
            return
    due = min((timer.when() for timer in loop._scheduled if not timer.cancelled()), default=math.inf)
    if min_sleep or due < loop.time() + soon or threading.active_count() > 1:
        await _wait_for_idle(min_sleep, max_sleep)


def parse_rules(self: Stylesheet, css: str, *args, **named) -> list[RuleSet]:
    """Textual's: the style sheets of every application are the same, and parsed once."""
    key = (css, args, *sorted(named.items()), *sorted(self._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, css, *args, **named)
    return _parsed[key]


app.wait_for_idle = pilot.wait_for_idle = wait_for_idle
Stylesheet._parse_rules = parse_rules


@dataclass
class Session:
    """An open application and its parts."""

    app: SpecTui
    client: FakeClient
    pilot: Pilot

    @property
    def chat(self) -> ChatScreen:
        return next(s for s in self.app.screen_stack if isinstance(s, ChatScreen))

    @property
    def status(self) -> str:
        return self.chat.query_one("#status").text_rows()[0].strip()

    @property
    def notice(self) -> str:
        widget = self.chat.query_one("#notice")
        return str(widget.content) if widget.has_class("shown") else ""

    @property
    def shown(self) -> str:
        """The transcript as text."""
        lines = self.chat.transcript.wrapped.lines
        return "\n".join("".join(t.text for t in line.toks) for line in lines).replace("\u00a0", " ")

    async def settle(self) -> None:
        """Let the pump take what the client has said."""
        await self.pilot.pause()
        self.chat.pump()
        await self.pilot.pause()

    async def ask(self, text: str, feed: int | None = None) -> None:
        """Type a prompt, send it, and let events through."""
        self.chat.prompt.focus()
        self.chat.prompt.put(text)
        await self.pilot.press("enter")
        await self.pilot.pause()
        if feed != 0:
            self.client.feed(feed)
        await self.settle()


def drawn(panel: Widget) -> list[tuple[str, Style]]:
    """What a panel draws, by pieces of one style."""
    return [(piece.text, piece.style) for strip in panel.render_lines(panel.size.region) for piece in strip]


@pytest.fixture
def session() -> Callable[..., AsyncIterator[Session]]:
    """``async with session(size=...) as s``: the application with a client of the test's own."""

    @asynccontextmanager
    async def opened(
        size: tuple[int, int] = (120, 40), client: FakeClient | None = None, request: Request | None = None, **kwargs
    ):
        client = client or FakeClient()
        app = SpecTui(client, LoadRequest(), initial_request_options=request, **kwargs)
        async with app.run_test(size=size) as pilot:
            s = Session(app, client, pilot)
            await s.settle()
            yield s

    return opened
