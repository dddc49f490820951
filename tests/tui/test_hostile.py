"""Nothing a model, a prompt or a file says reaches the terminal as a command, and markup stays text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.events import Paste

from engines.report.events import Failed, Loading
from engines.request import Request
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import READY, FakeClient, drawn_rows

HOSTILE = "a\x1b]52;c;ZXZpbA==\x07b \x9b2J [bold red]c[/] \u202edcba\u2066 \x00\x7f {x} [link=http://x]y[/link]\tz\n"
SHORT = "a\x1b[2J \x9b2J\u202eb"
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
    async with session() as s:
        s.chat.prompt.focus()
        s.app.post_message(Paste("x\x1b[2Jy\r\nz"))
        await s.pilot.pause()
        assert s.chat.prompt.text == "x␛[2Jy\nz"
        s.app.copy_to_clipboard("\x9b2J\r\nz")  # of an answer
        await s.pilot.press("ctrl+v")
        assert s.chat.prompt.text == "x␛[2Jy\nz\ufffd2J\nz"


@pytest.mark.parametrize("keys", [("f12",), ("ctrl+p",), ("ctrl+l", "tab"), ("E", "i"), ("r", "h", "slash")],
                         ids=" ".join)
async def test_what_is_pasted_into_a_field_of_one_line_is_harmless(session, keys):
    async with session() as s:
        await s.pilot.press("escape", *keys)
        s.app.post_message(Paste(SHORT))
        await s.pilot.pause()
        assert s.app.focused.value == "a␛[2J \ufffd2J\ufffdb" and not BAD & set(screen_text(s.app))
        s.app.copy_to_clipboard(SHORT)
        await s.pilot.press("ctrl+v")
        assert s.app.focused.value == 2 * "a␛[2J \ufffd2J\ufffdb" and not BAD & set(screen_text(s.app))


async def test_a_value_from_a_file_is_drawn_harmless_and_kept(session):
    request = Request((("system", f"{SHORT}\nc"), ("user", "")))
    async with session(request=request) as s:
        await s.pilot.press("ctrl+e")
        s.app.screen.query_one(".system Input").focus()
        await s.pilot.pause()
        assert "a␛[2J \ufffd2J\ufffdb↵c" in screen_text(s.app) and not BAD & set(screen_text(s.app))
        await s.pilot.press("enter")
        assert s.chat.session.settings.system == f"{SHORT}\nc"


async def test_names_of_files_are_not_completed_where_they_could_steer_the_terminal(session, tmp_path):
    (tmp_path / f"evil{SHORT}").mkdir()
    async with session(size=(160, 40)) as s:
        await s.pilot.press("ctrl+l", "tab")
        s.app.post_message(Paste(f"{tmp_path}/ev"))
        await s.pilot.pause()
        await s.pilot.pause()
        assert not BAD & set(screen_text(s.app))
        (tmp_path / "evident").mkdir()
        await s.pilot.press("i", "tab")
        assert s.app.focused.value == f"{tmp_path}/evident/"


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
