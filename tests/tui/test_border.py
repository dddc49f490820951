"""What goes wrong in a panel, a key or an event stays there; and no key of an input goes wrong over any text."""

from __future__ import annotations

import random
import re

import pytest
from textual.events import Key, Paste
from textual.widgets import Input, TextArea

from spec_tui.session import model_choices
from spec_tui.session.log import log_path
from spec_tui.tui import border
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.glossary import GlossaryScreen
from spec_tui.tui.screens.race import RaceScreen
from spec_tui.tui.widgets.prompt_box import PromptBox
from spec_tui.tui.widgets.speed_panel import SpeedPanel
from spec_tui.tui.widgets.transcript import Transcript
from spec_tui.tui.widgets.tree_panel import TreePanel
from tests.tui.test_data import until

TEXTS = ("word", "two words", "a\nb", "one line\nanother line\nand a third", "\n\n\n", "\n".join("abcdefghijkl"),
         "long " * 60, "tab\tand 漢字 é 🙂\nx", "  indented\n    more")


def keys_of(widget: type) -> list[str]:
    """Every key that a kind of input acts on, and a few letters; not those that leave it or send."""
    keys = {key for cls in widget.__mro__ for binding in cls.__dict__.get("BINDINGS", ())
            for key in (binding.key if hasattr(binding, "key") else binding[0]).split(",")}
    return [*sorted(keys - {"tab", "enter", "escape", "ctrl+o", "f3"}), "a", "space", "backspace"]


@pytest.fixture
def contained(monkeypatch, tmp_path):
    monkeypatch.setattr(SpecTui, "contains", True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return log_path(border.LOG)


async def check(s, box: PromptBox, dice: random.Random, times: int) -> None:
    """Keys over texts, in any order, then undone and done again: the cursor stays in the text, and all of it is
    wrapped."""
    keys = keys_of(PromptBox)
    for _ in range(times):
        box.put("")
        s.app.post_message(Paste(dice.choice(TEXTS)))
        await s.pilot.pause()
        for pressed in (dice.choices(keys, k=dice.randint(1, 7)), ["ctrl+z"] * 9, ["ctrl+y"] * 9):
            await s.pilot.press(*pressed)
            line, column = box.cursor_location
            assert line < box.document.line_count and column <= len(box.document[line])
            assert box.wrapped_document.height >= box.document.line_count


@pytest.mark.parametrize("size, times", [
    ((60, 14), 8), *(pytest.param(size, 15, marks=pytest.mark.thorough) for size in ((60, 14), (120, 40)))])
async def test_no_key_of_the_prompt_goes_wrong_over_any_text(session, size, times):
    async with session(size=size) as s:
        s.chat.prompt.focus()
        await check(s, s.chat.prompt, random.Random(size[0]), times)


async def test_undo_takes_back_a_paste_of_several_lines_and_redo_brings_it(session):
    async with session() as s:
        s.chat.prompt.focus()
        for text in TEXTS[2:6]:
            s.chat.prompt.put("")
            s.app.post_message(Paste(text))
            await s.pilot.pause()
            await s.pilot.press("ctrl+z")
            assert s.chat.prompt.text == ""
            await s.pilot.press("ctrl+y")
            assert s.chat.prompt.text == text


async def test_no_key_of_a_races_prompt_or_of_an_input_goes_wrong(session):
    dice = random.Random(3)
    async with session() as s:
        await s.pilot.press("escape", "r")
        await s.pilot.pause()
        assert isinstance(s.app.screen, RaceScreen)
        box = s.app.screen.query_one(PromptBox)
        box.focus()
        await check(s, box, dice, 2)
        s.app.push_screen(GlossaryScreen())
        await s.pilot.pause()
        field = s.app.screen.query_one(Input)
        field.focus()
        for _ in range(10):
            s.app.post_message(Paste(dice.choice(TEXTS)))
            await s.pilot.pause()
            await s.pilot.press(*dice.choices(keys_of(Input), k=6))
            assert s.app.focused is field and 0 <= field.cursor_position <= len(field.value)
            field.value = ""


@pytest.mark.parametrize("panel", [TreePanel, SpeedPanel])
async def test_a_panel_that_cannot_be_drawn_says_so_and_the_rest_goes_on(session, contained, monkeypatch, panel):
    def broken(self, width, height):
        raise KeyError("rejected\x1b[31m")

    async with session() as s:
        await s.ask("one", feed=3)
        monkeypatch.setattr(panel, "rows", broken)
        s.client.feed()
        await s.settle()
        assert "cannot be drawn: KeyError: 'rejected" in " ".join(s.chat.query_one(panel).text_rows())
        assert "\x1b" not in "".join(s.chat.query_one(panel).text_rows())
        assert "The two indices walk" in s.shown and s.app.is_running and len(s.app.faults) == 1
        assert contained.read_text().count("KeyError\n") == 1, "logged once, not once a frame"


@pytest.mark.parametrize("kind", [Transcript, TextArea])
async def test_lines_that_cannot_be_drawn_take_no_other_panel_along(session, contained, monkeypatch, kind):
    def broken(*_args):
        raise ValueError("the document line index 1 is out of bounds")

    async with session() as s:
        await s.ask("one")
        monkeypatch.setattr(kind, "style_of" if kind is Transcript else "render_line", broken)
        s.chat.transcript.forget_styles()
        s.chat.refresh()
        for widget in (s.chat.transcript, s.chat.prompt):
            widget.refresh()
        await s.pilot.pause()
        await s.pilot.press("escape")
        await s.pilot.pause()
        assert s.app.is_running and any("cannot be drawn: ValueError" in said for said in s.app.faults)
        await s.pilot.press("t")
        await s.pilot.pause()
        assert s.chat.query_one("#tree").has_class("hidden"), "keys still work"


async def test_a_thread_that_fails_keeps_the_session(session, contained, monkeypatch):
    async with session() as s:
        await s.ask("one")
        monkeypatch.setattr(model_choices, "targets", lambda load: 1 / 0)
        await s.pilot.press("ctrl+l")
        await until(s, lambda: s.app.faults)
        await s.pilot.press("escape")
        assert "ZeroDivisionError: division by zero" in s.app.faults[0] and s.app.is_running
        assert s.app.screen is s.chat and "The two indices walk" in s.shown


async def test_an_action_or_an_event_that_fails_keeps_the_session(session, contained, monkeypatch):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape")
        monkeypatch.setattr(type(s.chat), "action_details", lambda self: 1 / 0)
        await s.pilot.press("x")
        await s.pilot.pause()
        assert s.app.faults == ["details failed: ZeroDivisionError: division by zero; the log has more "
                                "(spec-tui doctor)"]
        assert any("division by zero" in str(note.message) for note in s.app._notifications)
        monkeypatch.setattr(s.chat, "on_text_area_changed", lambda event: {}["a key"], raising=False)
        monkeypatch.setattr(type(s.chat), "on_text_area_changed", lambda self, event: {}["a key"])
        await s.pilot.press("i", "h", "i")
        await s.pilot.pause()
        assert len(s.app.faults) == 2 and "changed in" in s.app.faults[1]
        await s.ask("two")
        assert len(s.chat.session.turns) == 2 and "The two indices walk" in s.shown
        assert not re.search(r"\bone\b", contained.read_text().replace("in one", "")), "the log holds no prompt"


async def test_a_key_that_fails_holds_up_no_later_one(session, contained, monkeypatch):
    def broken(action, parameters):
        if action == "command_palette":
            raise KeyError("no such state")
        return True

    async with session() as s:
        monkeypatch.setattr(s.app, "check_action", broken)
        for key in ("a", "ctrl+p", "b", "c", "d"):
            s.app.post_message(Key(key, key if len(key) == 1 else None))
        await s.pilot.pause(1.0)
        assert s.chat.prompt.text == "abcd" and len(s.app.faults) == 1


async def test_an_event_that_cannot_be_shown_does_not_lose_the_end_of_an_answer(session, monkeypatch):
    async with session() as s:
        await s.ask("one", feed=2)
        take, left = s.chat.session._on_run_event, [1]
        job = s.chat.session.jobs.at_work
        monkeypatch.setattr(job, "take", lambda event: {}["a key"] if left and left.pop() else take(job.about, event))
        s.client.feed()
        with pytest.raises(KeyError):
            s.chat.pump()
        await s.settle()
        assert not s.chat.session.busy and s.chat.session.last.run.finished is not None
        await s.ask("two")
        assert len(s.chat.session.turns) == 2, "the next prompt is answered"


def test_the_log_is_where_doctor_looks():
    assert log_path(border.LOG).parent == log_path("engine").parent
