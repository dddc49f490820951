"""What the terminal ends up showing, drawn piece by piece, is what the screen would draw in one go."""

from __future__ import annotations

import asyncio

import pyte
import pytest
from textual._context import active_app
from textual.drivers.headless_driver import HeadlessDriver

from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import ANSWER, FakeClient, drawn_rows


def terminal(size: tuple[int, int]) -> tuple[pyte.Screen, type[HeadlessDriver]]:
    """An emulated terminal and the driver that writes to it."""
    screen = pyte.Screen(*size)
    stream = pyte.Stream(screen)

    class Emulated(HeadlessDriver):
        @property
        def is_headless(self) -> bool:
            return False

        def write(self, data: str) -> None:
            stream.feed(data)

    return screen, Emulated


def drawn_at_once(app: SpecTui) -> list[str]:
    active_app.set(app)
    return [row.rstrip() for row in drawn_rows(app.screen)]


async def until(condition) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def same(screen: pyte.Screen, app: SpecTui) -> None:
    """Wait for the next frames, then compare line by line."""
    for _ in range(40):
        await asyncio.sleep(0.05)
        shown, wanted = [line.rstrip() for line in screen.display], drawn_at_once(app)
        if shown == wanted:
            return
    assert shown == wanted


@pytest.mark.parametrize("size", SMALL_FIRST)
async def test_piecemeal_drawing_equals_drawing_at_once(size):
    screen, driver = terminal(size)
    client = FakeClient(ANSWER * 5)
    app = SpecTui(client, LoadRequest())
    app.driver_class = driver
    task = asyncio.create_task(app.run_async(size=size))
    await asyncio.sleep(0.2)
    await until(lambda: app.session.phase == "ready")
    app.screen.prompt.cursor_blink = False
    app.screen.ask("write a merge")
    for step in (1, 3, 9, 1, 1, 30, 2, 40, 1, None):
        client.feed(step)
        await asyncio.sleep(0.15)
        await same(screen, app)
    app.screen.transcript.focus()
    app.screen.transcript.action_move(-1)
    app.screen.transcript.action_round(-1)
    await same(screen, app)
    app.exit()
    await task
