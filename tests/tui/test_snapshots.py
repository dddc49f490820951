"""How it looks: every size, theme and NO_COLOR; while it streams, finished, with dialogs. No clock is in the picture.

After a change that is meant: ``pytest tests/tui/test_snapshots.py --snapshot-update``, and look at the report.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.datastores.storage import catalog as places
from engines.heads.head_config import HEADS
from engines.report.events import LoadedHead
from engines.request import Request
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from tests.tiers import SIZES
from tests.tui.fakes import ANSWER, READY, RETRIEVING, FakeClient, entries

PROMPT = "Write a function that merges two sorted lists."


async def still(app: SpecTui, pilot):
    """The chat screen, loaded, its cursor not blinking."""
    await pilot.pause()
    app.screen.prompt.cursor_blink = False
    app.screen.pump()
    await pilot.pause()
    return app.screen


def picture(
    snap_compare, size, *, theme=None, feed=None, keys=(), prompt=PROMPT, commands=(), finds=(), engine="draft",
    ready=READY,
) -> bool:
    """Compare the screen after these steps with the stored one."""
    client = FakeClient(ANSWER, ready=ready)
    client.finds = finds
    app = SpecTui(client, LoadRequest(), theme=theme, initial_request_options=Request((), engine=engine))

    async def steps(pilot) -> None:
        chat = await still(app, pilot)
        for command in commands:
            chat.prompt.put(command)
            await pilot.press("enter")
        if prompt:
            chat.ask(prompt)
            client.feed(feed)
        chat.pump()
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            if key in ("a", "b"):
                client.feed()
                chat.pump()
            await pilot.pause()
        chat.draw_all()
        await pilot.pause()

    return snap_compare(app, terminal_size=size, run_before=steps)


@pytest.mark.parametrize("size", SIZES)
def test_welcome(snap_compare, size):
    assert picture(snap_compare, size, prompt="")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["spec-dark", "spec-light"])
def test_streaming(snap_compare, size, theme):
    assert picture(snap_compare, size, theme=theme, feed=28)


@pytest.mark.parametrize("size", SIZES)
def test_streaming_without_colour(snap_compare, size, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, size, feed=28)


@pytest.mark.parametrize("size", SIZES)
def test_finished_with_baseline_and_cursor(snap_compare, size):
    assert picture(snap_compare, size, keys=["escape", "b", "left", "left_square_bracket"])


@pytest.mark.parametrize("size", SIZES)
def test_inspector(snap_compare, size):
    assert picture(snap_compare, size, keys=["escape", "left", "left_square_bracket", "enter"])


def test_audited_with_a_bug(snap_compare):
    assert picture(snap_compare, (120, 40), keys=["escape", "a"], finds=("BUG", 41, 2.31))


def test_inspector_of_a_tie(snap_compare):
    keys = ["escape", "a", "home", "right", "right", "right", "enter"]
    assert picture(snap_compare, (80, 24), keys=keys, finds=("tie", 3, 0.0012))


@pytest.mark.parametrize("size", SIZES)
def test_engine_form(snap_compare, size):
    assert picture(snap_compare, size, keys=["ctrl+e", *["tab"] * 4, "9", "9"])


@pytest.mark.parametrize("size", SIZES)
def test_price(snap_compare, size):
    assert picture(snap_compare, size, keys=["f10"])


@pytest.mark.parametrize("size", SIZES)
def test_price_before_a_run(snap_compare, size):
    assert picture(snap_compare, size, prompt="", keys=["f10"])


def test_price_if_less_were_accepted_without_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, (120, 40), keys=["f10", *["left"] * 8])


@pytest.mark.parametrize("size", SIZES)
def test_showcase(snap_compare, size):
    assert picture(snap_compare, size, prompt="", keys=["ctrl+o", "down", "down"])


@pytest.mark.parametrize("view", ["source", "confidence", "plain"])
def test_views(snap_compare, view):
    assert picture(snap_compare, (120, 40), commands=[f"/view {view}"])


@pytest.mark.parametrize(("engine", "size"), [("eagle", (80, 24)), ("eagle", (120, 40)), ("medusa", (120, 40))])
def test_what_a_head_reads(snap_compare, engine, size):
    heads = {kind: LoadedHead("own") for kind in HEADS}
    ready = replace(READY, heads=heads)
    assert picture(snap_compare, size, engine=engine, ready=ready, commands=["/view source"],
                   keys=["escape", "left", *["t"] * (size[0] == 80)])


def test_views_without_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, (120, 40), commands=["/view source"])


@pytest.mark.parametrize("size", SIZES[:2])
@pytest.mark.parametrize("colour", ["colour", "no colour"])
def test_lossy_law(snap_compare, size, colour, monkeypatch):
    if colour == "no colour":
        monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, size, commands=["/law redraw", "/temp 0.8"])


def test_contrast_theme(snap_compare):
    assert picture(snap_compare, (120, 40), theme="spec-contrast", feed=28)


def test_help(snap_compare):
    assert picture(snap_compare, (120, 40), prompt="", keys=["f1"])


def test_dead_engine(snap_compare):
    client = FakeClient()
    app = SpecTui(client, LoadRequest(), initial_request_options=Request((), engine="draft"))

    async def steps(pilot) -> None:
        chat = await still(app, pilot)
        chat.ask(PROMPT)
        client.feed(12)
        chat.pump()
        client.die()
        chat.pump()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(120, 40), run_before=steps)


def test_enlarged_speed_in_one_column(snap_compare):
    assert picture(snap_compare, (80, 24), keys=["escape", "s"])


def test_enlarged_tree_in_one_column(snap_compare):
    assert picture(snap_compare, (80, 24), keys=["escape", "left", "left_square_bracket", "t"])


@pytest.mark.parametrize("size", SIZES)
def test_retrieval(snap_compare, size):
    keys = ["escape", "left", "left_square_bracket", *(["t"] if size[0] < 100 else [])]
    assert picture(snap_compare, size, engine="rest", ready=RETRIEVING, keys=keys)


def test_retrieval_by_meaning_without_colour(snap_compare, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert picture(snap_compare, (120, 40), engine="dresd", ready=RETRIEVING, feed=12, commands=["/view source"])


def test_inspector_of_a_retrieved_token(snap_compare):
    keys = ["escape", "home", *["right"] * 4, "enter"]
    assert picture(snap_compare, (120, 40), engine="rest", ready=RETRIEVING, keys=keys)


@pytest.mark.parametrize("size", SIZES)
def test_data_screen(snap_compare, size, monkeypatch):
    monkeypatch.setattr(places, "listing", entries)
    keys = ["escape", "d", "down", "space", "down", "space"]
    assert picture(snap_compare, size, engine="rest", ready=RETRIEVING, prompt="", keys=keys)
