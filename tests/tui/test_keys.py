"""One map of keys: over all screens a key means one thing."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
from collections import defaultdict
from pathlib import Path

import pytest
from textual.events import Key, MouseDown, MouseUp, Paste
from textual.keys import _character_to_key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets._footer import FooterKey

import spec_tui.tui
from engines.reproduce.entry import shipped
from spec_tui.tui import slash
from spec_tui.tui.actions import HasActions
from spec_tui.tui.screens.modal import Box
from spec_tui.tui.widgets.prompt_box import Choices
from tests.tui.fakes import RETRIEVING, FakeClient

# What moves, starts or ends something wherever one is, and what takes a digit.
EVERYWHERE = {
    "left", "right", "up", "down", "home", "end", "pageup", "pagedown", "enter", "escape", "tab", "backspace", "space",
}
MEANINGS = {  # keys that say the same with several labels
    "plus": {"One more": {"Add", "n", "More"}}, "equals_sign": {"One more": {"Add", "n", "More"}},
    "minus": {"One less": {"Remove", "Delete", "n", "Less"}}, "delete": {"One less": {"Remove", "Delete"}},
    "i": {"What is asked": {"Prompt", "Prompts"}},
    "full_stop": {"Step on": {"Step", "Phase"}},
    "n": {"Something new": {"New", "Build", "New title"}}, "R": {"Again": {"Again", "Go on"}},
    "m": {"Enlarge": {"Enlarge", "Numbers"}},
    "f1": {"Help, and back": {"Help", "Close"}}, "question_mark": {"What is this, and back": {"What is this", "Close"}},
    "p": {"Price, and back": {"Price", "Close"}}, "f10": {"Price, and back": {"Price", "Close"}},
    "d": {"Datastores, and back": {"Data", "Datastores", "Close"}}, "f2": {"Engine, and back": {"Engine", "Use"}},
    "w": {"What it means, and back": {"Words", "Explain", "Close"}},
    "x": {"More detail": {"Deeper", "Details"}},
    "slash": {"Type what to look up or do": {"Command", "Probe", "Find"}},
    "ctrl+r": {"Again": {"Again", "Rewind", "Restart"}}, "f4": {"Again": {"Again", "Rewind", "Restart"}},
}


README = {  # the keys that the README names, as it says what they do: the screen or widget and the action's label
    "*": "RaceScreen Repeats", "+": "LayersPanel n, RaceScreen Add",
    "-": "LayersPanel n, DataScreen Remove, HistoryScreen Delete, RaceScreen Remove", ".": "ChatScreen Step",
    "/": "DataScreen Probe, ChatScreen Command, HistoryScreen Find",
    "<": "RaceScreen Slower", ">": "RaceScreen Faster", "A": "StepScreen All_rows",
    "B": "StepScreen Branch", "D": "RaceScreen Diff", "G": "StepScreen Guess",
    "E": "ChatScreen Evaluate", "R": "DataScreen Go_on",
    "P": "SpecTui Present",
    "L": "RaceScreen Papers", "O": "LessonScreen Sources", "S": "RaceScreen Sort",
    "[": "Transcript Round", "]": "Transcript Round", "a": "ChatScreen Audit", "b": "ChatScreen Baseline",
    "c": "RaceScreen Copy", "d": "ChatScreen Data", "e": "RaceScreen Export, ChatScreen Export",
    "f": "RaceScreen Fair_or_live", "h": "RaceScreen History, ChatScreen History",
    "i": "ChatScreen Prompt, RaceScreen Prompt, EvaluateScreen Prompts", "k": "StepScreen Bookmark",
    "l": "ChatScreen Layers",
    "n": "DataScreen Build, HistoryScreen New_title", "o": "ChatScreen Models", "p": "ChatScreen Price",
    "r": "ChatScreen Race", "u": "EvaluateScreen Use_it", "v": "ChatScreen View",
    "w": "LessonScreen Words, ChatScreen Explain",
    "x": "ChatScreen Details, StepScreen Deeper", "ctrl+o": "ChatScreen Examples", "ctrl+e": "ChatScreen Engine",
    "ctrl+l": "ChatScreen Models", "F1": "SpecTui Help", "F6": "ChatScreen Audit", "F7": "ChatScreen Baseline",
    "F12": "SpecTui Glossary", "?": "SpecTui What_is_this",
}
NOT_OURS = {"ctrl+c", "ctrl+p"}  # the terminal's, and Textual's palette


def everyone() -> set[type]:
    """All screens and widgets with actions."""
    for module in pkgutil.walk_packages(spec_tui.tui.__path__, "spec_tui.tui."):
        importlib.import_module(module.name)
    return hosts()


def hosts(of: type = HasActions) -> set[type]:
    return {below for one in of.__subclasses__() for below in ({one} | hosts(one))}


def test_a_key_means_one_thing_on_all_screens():
    labels = defaultdict(set)
    for host in everyone():
        for action in host.__dict__.get("ACTIONS", ()):
            for key in filter(None, f"{action.keys},{action.anywhere}".split(",")):
                labels[key].add(action.label)
    assert len(labels) > 60, "the screens have been found"
    two = {}
    for key, found in labels.items():
        meant = {next((m for m, same in MEANINGS.get(key, {}).items() if label in same), label) for label in found}
        if key not in EVERYWHERE and len(meant) > 1:
            two[key] = sorted(found)
    assert not two


def test_the_keys_in_the_readme_do_what_it_says():
    text = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    named = set(re.findall(r"`([^`\w\s]|[A-Za-z])`", text)) | set(re.findall(r"\b(?:F\d+|ctrl\+\w)\b", text))
    assert named - NOT_OURS == set(README)
    table = defaultdict(set)
    for host in everyone():
        for action in host.__dict__.get("ACTIONS", ()):
            for key in action.key_words.split(" or "):
                table[key].add(f"{host.__name__} {action.label.replace(' ', '_')}")
    for key, does in README.items():
        assert set(does.split(", ")) <= table[key], key


async def test_the_palette_shows_keys_and_finds_screens_on_every_screen(session):
    from spec_tui.tui.screens.chat import ChatScreen
    from spec_tui.tui.screens.lessons import LessonsScreen
    from spec_tui.tui.screens.step import StepScreen

    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "full_stop")
        await s.pilot.pause()
        assert isinstance(s.app.screen, StepScreen)
        offered = {command.title: command for command in s.app.get_system_commands(s.app.screen)}
        assert {"Race", "Lessons", "Datastores", "Engine and options", "Cost of verification"} <= offered.keys()
        assert offered["Race"].help.startswith("r: ") and "Audit the answer" not in offered, "its screens, no more"
        await offered["Lessons"].callback()
        await s.pilot.pause()
        assert [type(screen) for screen in s.app.screen_stack] == [ChatScreen, LessonsScreen], "Step has been left"


@pytest.mark.parametrize("second", ["enter", "escape", "click"])
async def test_the_palette_runs_one_command_and_closes_no_screen_below(session, second):
    async with session() as s:
        await s.pilot.press("escape", "ctrl+p", *"Panels: details")
        await s.pilot.pause(0.5)
        await type_or_click_twice(s, second)
        assert s.app.screen_stack == [s.chat] and (s.chat.has_class("details") or second == "escape")
        await s.pilot.press("r", "ctrl+p", *"Glossary")
        race = s.app.screen_stack[1]
        await s.pilot.pause(0.5)
        await type_or_click_twice(s, second)
        assert s.app.screen_stack[:2] == [s.chat, race] and not s.app.faults


@pytest.mark.parametrize("second", ["enter", "click"])
async def test_what_comes_twice_opens_or_closes_one_screen(session, second):
    async with session() as s:
        for opens, more in (("learn", ["LessonsScreen", "LessonScreen"]), ("showcase", []), ("data", []),
                            ("engine", [])):
            await s.chat.run_action(opens)
            await s.pilot.pause()
            await type_or_click_twice(s, second)
            assert [type(screen).__name__ for screen in s.app.screen_stack] == ["ChatScreen", *more]
            while s.app.screen is not s.chat:
                await s.pilot.press("escape")


async def test_two_clicks_on_a_token_explain_it_once(session):
    async with session() as s:
        await s.ask("one", feed=20)
        lines = s.chat.transcript.wrapped.lines
        row = next(row for row, line in enumerate(lines) if any(tok.index >= 0 for tok in line.toks))
        await type_or_click_twice(s, "click", s.chat.transcript, row)
        assert [type(screen).__name__ for screen in s.app.screen_stack] == ["ChatScreen", "Inspector"]


async def type_or_click_twice(s, second: str, what: Widget | None = None, row: int = 0) -> None:
    """Enter and another key, or two clicks on a row of a widget (None: the list), with no time between them."""
    at = (what or s.app.screen.query_one(OptionList)).content_region.translate((0, row))
    for event in (MouseDown, MouseUp, MouseDown, MouseUp) if second == "click" else ("enter", second):
        s.app.post_message(Key(event, None) if isinstance(event, str) else event(
            None, at.x + 3, at.y, 0, 0, 1, False, False, False, at.x + 3, at.y))
    await s.pilot.pause(0.5)


async def test_esc_goes_one_way_and_i_enter_or_a_click_lead_back(session):
    async with session() as s:
        await s.ask("one", feed=5)
        s.chat.prompt.put("half a th")
        await s.pilot.press("slash", "escape")
        await s.settle()
        assert s.chat.session.busy is False or s.chat.escape_does in ("", "text", "close")
        s.chat.transcript.focus()
        await s.pilot.press("escape", "escape", "escape")
        assert s.chat.focused is s.chat.transcript and s.chat.escape_does == ""
        for back in ("i", "enter"):
            await s.pilot.press(back)
            assert s.chat.focused is s.chat.prompt
            await s.pilot.press("escape")
            assert s.chat.focused is s.chat.transcript
        await s.pilot.click("#prompt")
        assert s.chat.focused is s.chat.prompt and s.chat.prompt.text == "half a th/"


async def test_esc_closes_what_is_open_then_stops_then_goes_to_the_text(session):
    async with session() as s:
        await s.ask("one", feed=5)
        s.chat.prompt.put("/en")
        await s.pilot.pause()
        assert s.chat.escape_does == "close", "the list of commands"
        await s.pilot.press("escape")
        assert s.chat.escape_does == "stop" and s.chat.session.busy
        await s.pilot.press("escape")
        s.client.feed()
        await s.settle()
        assert s.chat.escape_does == "text" and s.chat.focused is s.chat.prompt
        await s.pilot.press("escape", "v")
        assert s.chat.prompt.text == "/en" and s.chat.transcript.view == "rejected"


async def test_a_resize_moves_no_focus(session):
    async with session() as s:
        for widget in (s.chat.transcript, s.chat.prompt):
            widget.focus()
            for size in ((50, 12), (80, 24), (200, 60), (120, 40)):
                await s.pilot.resize_terminal(*size)
                await s.pilot.pause(0.1)
            assert s.chat.focused is widget


async def test_the_footer_offers_no_key_that_does_nothing(session):
    def offered(s):
        return {key.description for key in s.chat.query("FooterKey")}

    async with session() as s:
        await s.pilot.press("escape")
        await s.pilot.pause()
        assert not offered(s) & {"Baseline", "Audit", "Stop", "Why", "Text"} and {"Engine", "Prompt"} <= offered(s)
        await s.pilot.press("b")
        assert "Type a prompt first" in s.status, "the key says why not"
        await s.ask("one")
        await s.pilot.press("escape")
        await s.pilot.pause()
        assert {"Baseline", "Audit"} <= offered(s) and "Why" not in offered(s)
        await s.pilot.press("left")
        await s.pilot.pause()
        assert "Why" in offered(s) and "Prompt" not in offered(s)


async def test_a_pasted_text_that_cannot_fit_is_said_to_and_kept(session):
    async with session(size=(80, 24)) as s:
        limit = s.chat.session.ready.context_limit
        for words, long in ((limit - 1, False), (limit + 9, True)):
            s.chat.prompt.put("")
            s.app.post_message(Paste("word " * words))
            await s.pilot.pause()
            await s.pilot.pause()
            assert (f"{words:,} words" in s.notice and f"holds {limit:,} tokens" in s.notice) == long
            assert s.chat.prompt.text == "word " * words
        await s.pilot.press("ctrl+z")
        await s.pilot.pause()
        assert s.notice == "" and s.chat.prompt.text == "", "nothing is left that cannot fit"
        await s.pilot.press("ctrl+y")
        s.app.post_message(Paste("word"))
        await s.pilot.pause()
        await s.pilot.pause()
        assert s.notice
        await s.pilot.press("escape")
        assert s.notice == "" and s.chat.focused is s.chat.prompt


async def test_enter_takes_what_is_typed_and_not_an_older_list(session):
    async with session() as s:
        s.chat.prompt.put("/")
        await s.pilot.pause()
        s.chat.prompt.put("/law exact")
        s.chat.prompt.action_send()
        await s.pilot.pause()
        assert s.chat.session.settings.law == "exact" and s.chat.prompt.text == ""


async def test_tab_completes_what_is_typed_and_not_an_older_list(session):
    async with session() as s:
        await s.pilot.press("slash", *["down"] * 5)
        s.chat.prompt.put("/eng")
        s.chat.prompt.action_complete()
        assert s.chat.prompt.text == "/engine "


async def test_commands_and_their_arguments_are_listed(session):
    async with session() as s:
        await s.pilot.press("slash", "e", "n")
        choices = s.chat.prompt.choices
        assert choices.display and [option.id for option in choices.options] == ["/engine "]
        await s.pilot.press("enter")
        assert s.chat.prompt.text == "/engine " and choices.get_option("/engine pld") and not s.client.requests
        second = choices.options[1].id.split()[1]
        await s.pilot.press("down", "enter")
        await s.pilot.pause()
        assert not choices.display and s.chat.prompt.text == "" and s.chat.session.settings.engine == second == "pld"
        await s.pilot.press(*"/set num", "enter", "4", "enter")
        assert s.chat.session.settings.options("pld")["num_tokens"] == 4
        await s.pilot.press("slash", "v", "i")
        for _ in range(50):  # a busy machine lays the list out later
            if choices.region.height:
                break
            await s.pilot.pause(0.1)
        await s.pilot.pause()
        await s.pilot.click("Choices", offset=(4, 0))
        for _ in range(50):
            if s.chat.prompt.text == "/view ":
                break
            await s.pilot.pause(0.1)
        assert s.chat.prompt.text == "/view " and choices.display


async def test_no_letter_overtakes_a_key_typed_before_it(session):
    async with session() as s:
        s.chat.prompt.put("abc")
        for key, character in (("backspace", "\x7f"), ("backspace", "\x7f"), ("x", "x"), ("left", None), ("y", "y")):
            s.app.post_message(Key(key, character))
        await s.pilot.pause(0.3)
        assert s.chat.prompt.text == "ayx"


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 6])
@pytest.mark.parametrize("typed", ["/race", "What is it? ", "Why\nand"])
async def test_what_is_typed_fast_on_the_text_arrives_in_order(session, typed, turns):
    """``turns``: of the event loop between two keys. A line end is enter."""
    async with session() as s:
        s.chat.TYPING = 0.15
        await s.pilot.press("escape")
        assert s.app.focused is not s.chat.prompt
        for letter in typed:
            s.app.post_message(Key(*(("enter", "\r") if letter == "\n" else (_character_to_key(letter), letter))))
            for _ in range(turns):
                await asyncio.sleep(0)
        await s.pilot.pause(0.5)
        sent, _, left = typed.rpartition("\n")
        assert s.chat.prompt.text == left
        assert [request.conversation[-1][1] for request in s.client.requests] == [sent] * bool(sent)


async def test_a_key_whose_end_is_not_seen_holds_up_no_other(session):
    async with session() as s:
        await s.pilot.press("f1")
        help_screen = s.app.screen
        s.app.post_message(Key("escape", "\x1b"))  # closes what would have told the end of it
        for letter in "abc":
            s.app.post_message(Key(letter, letter))
        await s.pilot.pause(1.0)
        assert s.app.screen is not help_screen and s.chat.prompt.text == "abc" and not s.app._typed


async def test_papers_are_reached_from_a_lesson(session):
    from spec_tui.tui.screens.papers import PapersScreen
    from spec_tui.tui.screens.race import RaceScreen

    async with session() as s:
        await s.pilot.press("escape")
        s.chat.action_learn()
        await s.pilot.pause()
        offered = {command.title: command for command in s.app.get_system_commands(s.app.screen)}
        await offered["Papers' tables"].callback()
        await s.pilot.pause()
        await s.pilot.pause()
        assert [type(screen) for screen in s.app.screen_stack[1:]] == [RaceScreen, PapersScreen]


async def test_the_tables_of_a_lesson_are_raced(session):
    from spec_tui.learn.lesson import names
    from spec_tui.tui.screens.race import RaceScreen

    async with session() as s:
        await s.pilot.press("escape")
        s.chat.action_learn()
        await s.pilot.pause()
        s.app.screen.listed.highlighted = names().index("rest")
        await s.pilot.press("L", "enter")
        await s.pilot.pause()
        await s.pilot.pause()
        assert [type(screen) for screen in s.app.screen_stack[1:]] == [RaceScreen]
        assert "rest-trie" in " ".join(s.app.screen.query_one("#race-said").text_rows())


@pytest.mark.parametrize("from_lesson", [False, True])
async def test_a_second_enter_does_not_start_a_race_that_was_not_chosen(session, from_lesson):
    async with session() as s:
        await s.chat.run_action("learn" if from_lesson else "papers")
        await s.pilot.pause()
        await s.pilot.press(*["L"] * from_lesson)
        papers = s.app.screen.listed
        papers.highlighted = 0 if from_lesson else list(shipped()).index("admg-sublayers")
        await s.pilot.pause()
        for _ in range(2):
            s.app.post_message(Key("enter", None))
        await s.pilot.pause(0.5)
        race = s.app.screen
        said = " ".join(race.query_one("#race-said").text_rows())
        assert list(shipped())[papers.highlighted] in said and not race.controller.running and not s.app.faults


async def test_a_command_typed_in_the_text_goes_to_the_prompt_whole(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", *["slash", "m", "a", "x", "space", "6", "4"])
        assert s.chat.prompt.text == "/max 64" and not s.chat.session.busy
        await s.pilot.press("enter")
        await s.pilot.pause()
        assert s.chat.session.settings.max_new_tokens == 64


async def test_a_prompt_that_was_begun_comes_back_after_a_command_typed_in_the_text(session):
    async with session() as s:
        await s.pilot.press(*"next one", "escape", *"/te", "escape", "escape", *"/max 64")  # esc closes the list first
        assert s.chat.prompt.text == "/max 64"
        await s.pilot.press("enter")
        await s.pilot.pause()
        assert s.chat.session.settings.max_new_tokens == 64
        assert s.chat.prompt.text == "next one" and not s.client.requests
        assert "64" in s.status and not s.app.screen.query_one(Choices).display


async def test_ctrl_u_clears_all_lines_and_undo_brings_them_back(session):
    async with session() as s:
        s.chat.prompt.put("one\ntwo\nthree")
        await s.pilot.press("up", "ctrl+u")
        assert s.chat.prompt.text == ""
        await s.pilot.press("ctrl+z")
        assert s.chat.prompt.text == "one\ntwo\nthree"


async def test_what_commands_do_is_cut_between_words(session):
    async with session(size=(80, 24)) as s:
        await s.pilot.press("slash")
        await s.pilot.pause()
        choices = s.app.screen.query_one(Choices)
        shown = [str(choices.get_option_at_index(n).prompt) for n in range(choices.option_count)]
        whole = {f"/{name}": words for name, (_, words) in slash.COMMANDS.items()}
        for line in (line for line in shown if line.endswith("…")):
            name, words = line.removesuffix("…").split(maxsplit=1)
            assert not (whole[name][len(words) :][:1].isalnum() and words[-1].isalnum()), line


async def test_keys_of_the_footer_change_where_they_stand_and_take_the_mouse(session):
    async with session() as s:
        await s.ask("one")
        before = {key: key.description for key in s.chat.query(FooterKey)}
        await s.pilot.press("escape")
        await s.pilot.pause()
        after = [*s.chat.query(FooterKey)]
        assert any(before.get(key, key.description) != key.description for key in after)
        shown = {key.description: key for key in after}
        assert all(key.region.width == len(key.key_display) + len(key.description) + 3
                   for key in after if not key.has_class("-command-palette"))
        was = s.chat.transcript.view
        await s.pilot.click(shown["View"])
        await s.pilot.pause()
        assert s.chat.transcript.view != was
        await s.pilot.click(shown["Prompt"])
        await s.pilot.pause()
        assert s.chat.focused is s.chat.prompt


@pytest.mark.parametrize("width", [60, 80])
async def test_keys_that_have_no_room_are_left_out_whole(session, width):
    """At the foot of a screen, and in the frame of a dialog: help and the way out stay."""
    async with session(size=(width, 24)) as s:
        await s.ask("one")
        await s.pilot.press("escape", "full_stop")
        await s.pilot.pause()
        keys = [key for key in s.app.screen.query(FooterKey) if not key.has_class("-command-palette")]
        (palette,) = s.app.screen.query(".-command-palette")
        assert all(key.region.right <= palette.region.x for key in keys)
        assert {"escape", "f1"} <= {key.key for key in keys} and "space" in {key.key for key in keys}
        await s.pilot.press("B")
        await s.pilot.pause()
        box = s.app.screen.query_one(Box)
        assert box.border_subtitle.startswith("enter continues") and box.border_subtitle.endswith("esc closes")
        assert len(box.border_subtitle) <= box.size.width


async def test_a_screen_that_was_left_does_nothing_after_the_next_refresh(session):
    """Its widgets may be gone by then."""
    seen, drawn = set(), []
    async with session(client=FakeClient(ready=RETRIEVING)) as s:
        await s.ask("one")
        for keys in ("f1", "f12", "h", "r plus", "r ctrl+o", "r L", "E", "p", "w", "e", "o", "d n", "d slash", "ctrl+e",
                     "full_stop B", "full_stop B enter", "left enter", "slash l e a r n enter enter O"):
            await s.pilot.press("escape", "escape", *keys.split())
            await s.pilot.pause()
            while (screen := s.app.screen) is not s.chat:
                seen.add(type(screen))
                screen.call_after_refresh(drawn.append, screen)
                screen.dismiss(None)
                await s.pilot.pause()
    assert not drawn
    left_out = {screen.__name__ for screen in everyone() - seen if issubclass(screen, Screen) and not hosts(screen)}
    assert left_out == {"ChatScreen", "ClassScreen", "DocumentScreen"}, "the others have been tried"


async def test_help_under_the_glossary_still_begins_with_the_keys_of_the_screen(session):
    async with session() as s:
        await s.pilot.press("escape", "E", "f1", "f12")
        await s.pilot.resize_terminal(100, 30)
        await s.pilot.pause()
        await s.pilot.press("escape")
        here, _, _ = str(s.app.screen.query_one("#text").content).partition("\nmarks\n")
        assert here.startswith("this screen\n") and "Start the evaluation" in here
