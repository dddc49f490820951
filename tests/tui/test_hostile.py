"""Nothing a model, a prompt or a file says reaches the terminal as a command, and markup stays text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.report.events import Failed, Loading
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import READY, FakeClient, drawn_rows

HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b \x9b2J [bold red]c[/] \u202edcba\u2066 \x00\x7f {x} [link=http://x]y[/link]\tz\n"
BAD = set("\x1b\x07\x9b\x00\x7f\u202e\u2066")


def screen_text(app) -> str:
    return "\n".join(drawn_rows(app.screen))


@pytest.mark.parametrize("size", SMALL_FIRST)
async def test_hostile_text_everywhere(session, size):
    ready = replace(READY, model=HOSTILE, draft_model=None, warnings=(HOSTILE,), no_draft_model=HOSTILE)
    async with session(size=size, client=FakeClient(HOSTILE * 3, ready=ready)) as s:
        await s.ask(HOSTILE, feed=4)
        assert not BAD & set(screen_text(s.app))
        s.client.feed()
        await s.settle()
        assert not BAD & set(screen_text(s.app))
        assert "[bold red]c[/]" in s.shown.replace("\n", " ")
        for command in (f"/system {HOSTILE.strip()}", f"/engine {HOSTILE.strip()}", f"/{HOSTILE.strip()}"):
            await s.ask(command)
            assert not BAD & set(screen_text(s.app))
        await s.ask("again", feed=0)
        for event in (Loading(HOSTILE, 0.5), Failed(HOSTILE, HOSTILE, "failed")):
            assert not BAD & set(screen_text(s.app))
            s.client.say(event)
            await s.settle()
        assert not BAD & set(screen_text(s.app)) and "[bold red]" in s.notice
        await s.pilot.press("ctrl+e")
        await s.pilot.pause()
        assert not BAD & set(screen_text(s.app))
        await s.pilot.press("escape")
        s.chat.transcript.focus()
        await s.pilot.press("left", "enter")
        await s.pilot.pause()
        assert not BAD & set(screen_text(s.app))


async def test_pasted_text_is_made_visible_before_it_is_sent(session):
    from textual import events

    async with session() as s:
        s.chat.prompt.focus()
        s.app.screen.post_message(events.Paste("x\x1b[2Jy\r\nz"))
        s.chat.prompt.post_message(events.Paste("x\x1b[2Jy\r\nz"))
        await s.pilot.pause()
        assert "\x1b" not in s.chat.prompt.text and "␛[2Jy\nz" in s.chat.prompt.text


async def test_no_color_draws_every_screen(session, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with session() as s:
        await s.ask("one", feed=20)
        for view in ("source", "confidence", "plain", "outcome"):
            s.chat.action_view(view)
            await s.pilot.pause()
            assert screen_text(s.app)
        s.client.feed()
        await s.settle()
        for key in ("f1", "escape", "ctrl+e", "escape", "ctrl+o", "escape"):
            await s.pilot.press(key)
            await s.pilot.pause()
            assert screen_text(s.app)


async def test_every_theme_draws(session):
    async with session() as s:
        await s.ask("one", feed=20)
        for theme in sorted(s.app.available_themes):
            s.app.theme = theme
            await s.pilot.pause()
            assert "answer" in screen_text(s.app)
