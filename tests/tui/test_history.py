"""Conversations that are kept: saved by themselves, continued, renamed, deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.events import Key

from engines.report.events import Failed
from spec_tui.present.speed_caveats import Caveat
from spec_tui.session.history import History
from spec_tui.tui import chat_text
from spec_tui.tui.screens.chat import ChatScreen
from spec_tui.tui.screens.history_list import HistoryScreen, when


@pytest.fixture
def store(tmp_path) -> History:
    return History(tmp_path)


async def test_an_answer_is_saved_and_goes_on_in_another_session(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.ask("two")
        (entry,) = store.entries("conversations")
        assert entry.title == "one" and entry.count == 2
        said = s.chat.session.turns[1].run.text
        await s.ask("/new", feed=0)
        await s.ask("three")
        assert {entry.title for entry in store.entries("conversations")} == {"one", "three"}
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        assert isinstance(s.app.screen, HistoryScreen)
        await s.pilot.press("down", "enter")
        await s.settle()
        assert isinstance(s.app.screen, ChatScreen) and "continuing ‹one›" in s.status
        assert "one" in s.shown and "two" in s.shown and said.splitlines()[0] in s.shown
        await s.ask("four")
        asked = [text for role, text in s.client.requests[-1].conversation if role == "user"]
        assert asked == ["one", "two", "four"]
    entries = {entry.title: entry.count for entry in store.entries("conversations")}
    assert entries == {"one": 3, "three": 1}


async def test_an_answer_under_way_is_kept_where_the_application_ends(session, store):
    async with session(store=store) as s:
        await s.ask("one", feed=3)
        said = s.chat.session.turns[0].run.text
        assert said and s.chat.session.turns[0].run.running and not store.entries("conversations")
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        (turn,) = s.chat.session.turns
        assert (turn.run.text, turn.run.finished.reason, turn.kept) == (said, "cancelled", True)


async def test_an_answer_that_the_engines_death_cut_off_is_kept_but_not_built_upon(session, store):
    async with session(store=store) as s:
        await s.ask("one", feed=4)
        s.client.die()
        await s.settle()
        said = s.chat.session.turns[0].run.text
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        assert said and s.chat.session.turns[0].run.text == said and said.splitlines()[0] in s.shown
        await s.ask("two")
        assert s.client.requests[-1].conversation == (("user", "two"),)


async def test_an_answer_that_broke_is_shown_before_later_ones(session, store):
    async with session(store=store) as s:
        await s.ask("first", feed=6)
        s.client.pending.clear()
        s.client.say(Failed("the model failed", "try again"))
        await s.settle()
        said = s.chat.session.turns[0].run.text
        await s.ask("second")
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        broken = s.shown.partition("second")[0]
        assert said.splitlines()[0] in broken and "! the model failed" in broken


async def test_a_conversation_with_a_damaged_answer_goes_on_as_another_one(session, store):
    async with session(store=store) as s:
        for word in ("one", "two", "three"):
            await s.ask(word)
    (entry,) = store.entries("conversations")
    (entry.folder / "0002.jsonl").write_text("not a trace")
    third = (entry.folder / "0003.jsonl").read_bytes()
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        assert "1 damaged run: what follows is saved as another conversation" in s.status
        await s.ask("four")
    assert (entry.folder / "0002.jsonl").read_text() == "not a trace"
    assert (entry.folder / "0003.jsonl").read_bytes() == third
    latest, former = store.entries("conversations")
    assert (latest.questions(9), former.questions(9)) == (["one", "three", "four"], ["one", "three"])


async def test_an_answer_that_lacks_rounds_is_shown_so_and_the_model_sees_all_of_it(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        whole = s.chat.session.turns[0].run.text
    (entry,) = store.entries("conversations")
    trace = entry.folder / "0001.jsonl"
    lines = trace.read_bytes().splitlines(keepends=True)
    trace.write_bytes(b"".join(lines[:3] + lines[4:]))
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        assert "[…]" in s.shown
        await s.pilot.press("escape", "y")
        assert s.app.clipboard == whole
        await s.pilot.press("f6")
        assert "Rounds of this answer are missing" in s.status
        await s.ask("two")
        assert s.client.requests[-1].conversation == (("user", "one"), ("assistant", whole), ("user", "two"))


async def test_the_first_list_of_conversations_describes_the_first_one_in_full(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.ask("two")
    async with session(store=store, size=(120, 40)) as s:
        await s.ask("/history", feed=0)
        about = s.app.screen.query_one("#about")
        assert about.region.height >= len(str(about.render()).splitlines()) == 7


async def test_the_list_is_searched_by_words_of_titles_and_questions(session, store):
    async with session(store=store) as s:
        for words in ("Merge two lists", "Tell a story", "a Dog in it, please"):
            if words == "Tell a story":
                await s.ask("/new", feed=0)
            await s.ask(words)
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        screen = s.app.screen
        await s.pilot.press("slash", *"dog story")
        assert [entry.title for entry in screen.entries] == ["Tell a story"] and "Dog" in str(
            screen.query_one("#about").render())
        await s.pilot.press(*"xx")
        assert not screen.entries and "None of 2 has these words" in str(screen.query_one("#said").render())
        await s.pilot.press("backspace", "backspace", "enter", "minus", "minus")
        assert [entry.title for entry in store.entries("conversations")] == ["Merge two lists"] and not screen.entries
        await s.pilot.press("escape", "enter")
        await s.settle()
        assert isinstance(s.app.screen, ChatScreen) and "continuing ‹Merge two lists›" in s.status


async def test_words_typed_fast_in_the_search_describe_what_is_listed(session, store):
    async with session(store=store) as s:
        for words in ("hay", "hey"):
            await s.ask("/new", feed=0)
            await s.ask(words)
        await s.ask("/history", feed=0)
        screen = s.app.screen
        await s.pilot.press("slash")
        for typed, titles in (("hx", []), ("\x7fay", ["hay"])):
            for letter in typed:
                s.app.post_message(Key("backspace" if letter == "\x7f" else letter, letter))
            await s.pilot.pause(0.3)
            assert [entry.title for entry in screen.entries] == titles
            assert str(screen.query_one("#about").render()).startswith("".join(titles))


async def test_a_saved_answer_of_a_folder_is_that_folders(session, store):
    """Traces name a folder by its last two parts."""
    async with session(store=store) as s:
        await s.ask("one")
        run, ready = s.chat.session.last.run, s.chat.session.ready
        run = replace(run, started=replace(run.started, model="models/other"))
        s.chat.session.ready = replace(ready, model="/home/me/models/other")
        assert s.chat.session.foreign(run) == ""
        s.chat.session.ready = replace(ready, model="/home/me/old/other")
        assert "models/other" in s.chat.session.foreign(run)


async def test_an_answer_of_another_model_is_named_and_not_compared(session, store):
    """Neither by a baseline, nor by making it again, nor by a branch."""
    async with session(store=store) as s:
        await s.ask("one")
        ready = s.chat.session.ready
        s.chat.session.ready = replace(ready, model="folder/other")
        await s.pilot.press("escape", "b")
        assert "load that model" in s.status and len(s.client.requests) == 1
        for key in ("A", "B"):
            await s.pilot.press("full_stop", "right", key)
            await s.settle()
            assert "load that model" in s.app.screen.message and len(s.client.requests) == 1, key
            await s.pilot.press("escape")
        await s.ask("two", feed=3)
        assert s.shown.count("sample 12M · Hybrid") >= 1


async def test_a_conversation_names_all_models_that_answered(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.ask("two")
        assert store.entries("conversations")[0].about == "sample 12M" and "sample 12M · " not in s.shown
        turn = s.chat.session.turns[1]
        turn.run = replace(turn.run, started=replace(turn.run.started, model="folder/other"))
        await s.ask("three")
        assert store.entries("conversations")[0].about == "sample 12M, folder/other"
        assert s.shown.count("sample 12M · Hybrid") == 2 and s.shown.count("folder/other · Hybrid") == 1


async def test_the_key_for_a_new_conversation_says_that_this_one_is_kept(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.pilot.press("escape", "n")
        assert "h lists this one" in s.status and s.chat.session.turns
        await s.pilot.press("n")
        assert not s.chat.session.turns and len(store.entries("conversations")) == 1


async def test_a_restored_turn_can_be_inspected_and_stepped_through(session, store):
    async with session(store=store) as s:
        await s.ask("one")
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        await s.pilot.press("escape", "left", "enter")
        assert type(s.app.screen).__name__ == "Inspector"
        await s.pilot.press("escape", "full_stop")
        await s.settle()
        assert type(s.app.screen).__name__ == "StepScreen" and s.app.screen.player.rounds > 1


async def test_a_measured_baseline_is_there_again(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.pilot.press("escape", "b")
        s.client.feed()
        await s.settle()
        assert "same text ✓" in s.shown
    (entry,) = store.entries("conversations")
    assert entry.count == 1 and entry.questions(9) == ["one"]
    async with session(store=store) as s:
        await s.ask("/history", feed=0)
        await s.pilot.press("enter")
        await s.settle()
        assert "same text ✓" in s.shown and len(s.chat.session.turns) == 1
        assert any("autoregressive, the same prompt" in row for row in s.chat.query_one("#speed").text_rows())


async def test_asking_again_replaces_what_was_kept(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.pilot.press("ctrl+r")
        s.client.feed()
        await s.settle()
        (entry,) = store.entries("conversations")
        assert entry.count == 1 and len(list(entry.folder.glob("*.jsonl"))) == 1


async def test_rename_and_delete_by_keys(session, store):
    async with session(store=store) as s:
        await s.ask("one")
        await s.ask("/history", feed=0)
        await s.pilot.press("n", *(["backspace"] * 3), "n", "e", "w", "enter")
        assert store.entries("conversations")[0].title == "new"
        await s.pilot.press("n", "x", "escape", "minus")
        assert store.entries("conversations")[0].title == "new"
        await s.pilot.press("minus")
        assert store.entries("conversations") == [] and isinstance(s.app.screen, HistoryScreen)
        assert "no longer saved" in str(s.app.screen.query_one("#said").render())
        await s.pilot.press("minus", "n", "enter", "escape")
        await s.ask("two")
        assert store.entries("conversations") == [], "a conversation that was deleted does not come back"
        await s.ask("/new", feed=0)
        await s.ask("three")
        assert [entry.title for entry in store.entries("conversations")] == ["three"]


async def test_nothing_is_kept_where_that_is_turned_off(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("/history", feed=0)
        assert "SPEC_TUI_HISTORY" in str(s.app.screen.query_one("#said").content)
        await s.pilot.press("minus", "n", "enter", "escape")
        assert isinstance(s.app.screen, ChatScreen)


async def test_a_disk_that_refuses_is_said_and_the_answer_stays(session, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    async with session(store=History(tmp_path / "file" / "history")) as s:
        await s.ask("one")
        assert "cannot be saved" in s.status + s.notice and s.chat.session.turns
        monkeypatch.setattr(s.chat.session, "caveats", lambda run: [Caveat("the machine was busy", "")])
        await s.ask("two")
        assert "cannot be saved" in s.status and "the machine was busy" in s.status + s.notice
        later = "".join(words for words, _ in chat_text.status(s.chat.session, "", 120))
        assert "2 turns in this conversation; it cannot be saved" in later


def test_times_that_cannot_be_are_unknown():
    assert when(float("inf")) == when(float("nan")) == when(1e30) == "unknown"
