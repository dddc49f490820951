"""The chat while models load, and where the engine is dead or stuck."""

from __future__ import annotations

import pytest

from engines.report.events import Failed, Loading
from tests.tui.fakes import READY, FakeClient


async def test_a_prompt_that_is_taken_back_replaces_none_that_is_typed(session):
    async with session(client=FakeClient(auto=False)) as s:
        await s.pilot.press(*"one", "enter", *"two", "escape")
        assert s.chat.prompt.text == "two"


async def test_a_prompt_with_a_slash_comes_back_as_it_was_typed(session):
    async with session(client=FakeClient(auto=False)) as s:
        await s.ask("//etc is what?")
        assert s.chat.session.queued == "/etc is what?"
        await s.pilot.press("escape")
        assert s.chat.prompt.text == "//etc is what?"
        s.client.say(READY)
        await s.settle()
        await s.ask("/1+1 is what?")
        assert s.client.requests[-1].conversation[-1] == ("user", "/1+1 is what?")


async def test_a_prompt_sent_while_loading_waits_and_goes(session):
    async with session(client=FakeClient(auto=False)) as s:
        s.client.say(Loading("reading the weights", 0.25))
        await s.ask("early")
        assert "reading the weights" in s.status and "25%" in s.status and "your prompt waits" in s.status
        assert s.chat.prompt.text == "" and not s.client.requests
        s.client.say(READY)
        await s.settle()
        assert s.client.requests[0].conversation == (("user", "early"),)


GOING = Loading("downloading draft: 1.21 of 5.64 GB, 34.1 MB/s, 12 min left", 0.21, 5_640_000_000)


@pytest.mark.parametrize("stage", [GOING.stage, GOING.stage.replace("draft: ", "")])
async def test_a_download_is_read_at_80_columns_and_esc_stops_it(session, stage):
    async with session(client=FakeClient(auto=False), size=(80, 24)) as s:
        assert "starting the engine  esc stops" in s.status
        s.client.say(Loading(stage, GOING.done, GOING.bytes))
        await s.settle()
        shown = s.status[:79]
        assert stage in shown and "21%" in shown and ("esc stops" in shown or "draft" in stage)
        await s.pilot.press("escape")
        assert s.client.cancels == 1 and "stopping the loading" in s.status
        s.client.say(Failed("loading was stopped", "what was downloaded stays", "cancelled"))
        await s.settle()
        assert "ctrl+r tries again" in s.status
        assert "Loading was stopped" in s.notice and "What was downloaded stays" in s.notice
        await s.pilot.press("ctrl+r")
        assert s.client.loads == 2


@pytest.mark.parametrize(("size", "words"), [
    ((120, 40), "your prompt waits: testing the model with drafts  █"), ((80, 24), "testing the model with drafts  █"),
    ((60, 16), "testing the model with…   85%")])
async def test_a_prompt_that_waits_says_at_every_size_how_far_the_loading_is_and_what_esc_does(session, size, words):
    async with session(client=FakeClient(auto=False), size=size) as s:
        s.client.say(Loading("testing the model with drafts", 0.85))
        await s.ask("early")
        assert words in s.status and s.status.endswith(" 85%  esc takes back your prompt")


async def test_a_prompt_that_waits_for_a_download_is_taken_back_first(session):
    async with session(client=FakeClient(auto=False)) as s:
        s.client.say(GOING)
        await s.ask("early")
        assert "esc takes back your prompt" in s.status
        await s.pilot.press("escape")
        assert s.chat.prompt.text == "early" and s.client.cancels == 0
        await s.pilot.press("escape")
        assert s.client.cancels == 1


async def test_esc_takes_a_waiting_prompt_back(session):
    async with session(client=FakeClient(auto=False)) as s:
        await s.ask("early")
        await s.pilot.press("escape")
        assert s.chat.prompt.text == "early" and s.chat.session.queued is None


async def test_a_failed_load_shows_the_way_out_and_tries_again(session):
    failed = Failed("there is no model at nowhere", "give a folder or a hub id", "model")
    async with session(client=FakeClient(ready=failed)) as s:
        assert "There is no model at nowhere." in s.notice and "Give a folder" in s.notice and "ctrl+r" in s.notice
        await s.ask("hello")
        assert s.chat.prompt.text == "hello" and "No model is loaded" in s.status
        s.client.ready = READY
        await s.pilot.press("ctrl+r")
        await s.settle()
        assert s.notice == "" and s.client.loads == 2 and "No model" not in s.status
        await s.ask("hello")
        assert len(s.client.requests) == 1


async def test_an_engine_that_does_not_stop_is_restarted_and_the_conversation_is_kept(session, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("spec_tui.session.jobs.monotonic", lambda: now[0])
    async with session() as s:
        await s.ask("one")
        await s.ask("two", feed=3)
        s.client.cancel = lambda *job, **how: None  # its drafter does not return
        await s.pilot.press("escape")
        now[0] = 4.0
        await s.settle()
        assert "stopping after this round" in s.status
        now[0] = 6.0
        await s.pilot.press("escape")  # once more
        await s.settle()
        assert "the engine does not answer  ctrl+r restarts it" in s.status
        assert s.chat.session.blocked_reason == "The engine does not answer: in the chat ctrl+r restarts it."
        await s.pilot.press("ctrl+r")
        await s.settle()
        assert s.client.restarts == 1 and s.client.loads == 2 and s.notice == "" and "ready" in s.status
        assert [turn.kept for turn in s.chat.session.turns] == [True, False] and s.chat.prompt.text == "two"
        assert "! the engine does not answer" in s.shown


async def test_a_dead_engine_leaves_the_screen_alive_and_offers_a_restart(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("two", feed=4)
        s.client.die()
        await s.settle()
        assert "Ctrl+r" in s.notice and s.chat.prompt.text == "two"
        await s.pilot.press("enter")
        assert s.chat.prompt.text == "two" and len(s.client.requests) == 2
        await s.pilot.press("ctrl+r")
        await s.settle()
        assert s.client.restarts == 1 and s.notice == ""
        await s.pilot.press("enter")
        s.client.feed()
        await s.settle()
        assert s.client.requests[-1].conversation[0] == ("user", "one")
        assert "136 tokens" in s.shown.split("two")[-1]


async def test_the_client_is_closed_at_the_end(session):
    async with session() as s:
        client = s.client
    assert client.closed
