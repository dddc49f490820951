"""The chat screen from the outside: keys in, requests and text out."""

from __future__ import annotations

import pytest
from textual.events import Key, Paste

from engines.report.events import Failed, Finished
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.session import chat_session
from spec_tui.tui.screens.chat import PACE, SHARED, ChatScreen
from spec_tui.tui.screens.explain import ExplainScreen
from spec_tui.tui.screens.showcase import ShowcaseScreen
from tests.tui.fakes import ANSWER, FakeClient


async def test_ctrl_z_brings_back_what_an_example_replaced(session):
    async with session() as s:
        await s.pilot.press(*"draft", "ctrl+o", "space")
        assert s.chat.prompt.text != "draft"
        await s.pilot.press("ctrl+z")
        assert s.chat.prompt.text == "draft"


async def test_send_stream_finish(session):
    async with session() as s:
        await s.ask("write a merge", feed=4)
        assert s.client.requests[0].conversation == (("user", "write a merge"),)
        assert s.chat.prompt.text == "" and "answering" in s.status
        assert "def" in s.shown and "tokens/s" not in s.shown
        s.client.feed()
        await s.settle()
        assert all(line.strip() in s.shown for line in ANSWER.splitlines()[:8])
        assert "136 tokens" in s.shown and "accepted" in s.shown
        assert s.status.startswith("ready")


async def test_typing_goes_on_while_text_streams_and_is_kept(session):
    async with session() as s:
        await s.ask("first", feed=4)
        await s.pilot.press(*"next", "enter")
        assert s.chat.prompt.text == "next"
        assert "esc stops" in s.status and len(s.client.requests) == 1


async def test_enter_does_not_overtake_what_was_typed_before_it(session):
    async with session() as s:
        s.chat.prompt.focus()
        await s.pilot.press(*"abcdefgh", "enter", *"xyz")
        await s.pilot.pause()
        assert s.client.requests[0].conversation[-1] == ("user", "abcdefgh")
        assert s.chat.prompt.text == "xyz"


@pytest.mark.parametrize("cores, seldom", [(2, True), (3, False)])
async def test_a_model_on_all_cores_is_drawn_seldom_while_it_answers(session, monkeypatch, cores, seldom):
    async with session() as s:  # of two threads
        chat = s.chat
        monkeypatch.setattr(chat_session, "processors", lambda: cores)
        chat.session.send("hello")
        assert (chat.pace is SHARED) == seldom
        s.client.feed()
        chat.pump()
        assert not chat.session.busy and chat.pace is PACE


async def test_the_cursor_stands_still_while_the_model_computes_on_all_cores(session, monkeypatch):
    async with session() as s:  # of two threads
        monkeypatch.setattr(chat_session, "processors", lambda: 2)
        s.chat.prompt.cursor_blink = True
        await s.ask("hello", feed=4)
        assert not s.chat.prompt.cursor_blink
        s.client.feed()
        await s.settle()
        assert s.chat.prompt.cursor_blink


async def test_esc_stops_keeps_the_text_and_the_next_turn_builds_on_it(session):
    async with session() as s:
        await s.ask("first", feed=8)
        await s.pilot.press("escape")
        await s.settle()
        kept = s.chat.session.turns[0].run.text
        assert kept and ANSWER.startswith(kept) and "stopped with esc" in s.shown
        await s.ask("go on")
        assert s.client.requests[1].conversation == (("user", "first"), ("assistant", kept), ("user", "go on"))
        assert "KV reused" in s.shown


async def test_esc_before_the_first_token_gives_the_prompt_back(session):
    async with session() as s:
        await s.ask("first", feed=0)
        await s.pilot.press("escape")
        await s.settle()
        assert s.chat.prompt.text == "first"
        assert not s.chat.session.turns and "first" not in s.shown


async def test_ctrl_c_says_how_to_leave_wherever_the_focus_is(session):
    async with session() as s:
        await s.ask("one")
        for focus in (s.chat.prompt, s.chat.transcript):
            focus.focus()
            s.chat.say("")
            await s.pilot.pause()
            s.app.post_message(Key("ctrl+c", "\x03"))  # as a terminal sends it, with its character
            await s.pilot.pause(0.2)
            assert "ctrl+q leaves" in s.status, focus


async def test_newline_and_history(session):
    async with session() as s:
        await s.pilot.press("a", "ctrl+j", "b")
        assert s.chat.prompt.text == "a\nb"
        await s.pilot.press("enter")
        s.client.feed()
        await s.settle()
        await s.ask("second")
        await s.pilot.press("d", "up")
        assert s.chat.prompt.text == "second"
        await s.pilot.press("up")
        assert s.chat.prompt.text == "a\nb"
        await s.pilot.press("down", "down")
        assert s.chat.prompt.text == "d"


async def test_a_broken_run_keeps_the_prompt_and_the_conversation(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("two", feed=3)
        s.client.pending.clear()
        s.client.say(Failed("the context is full", "start a new conversation with n", "failed"))
        await s.settle()
        assert "The context is full." in s.notice and s.chat.prompt.text == "two"
        await s.ask("three")
        assert s.notice == ""
        assert ("user", "two") not in s.client.requests[-1].conversation
        assert s.client.requests[-1].conversation[0] == ("user", "one")


@pytest.mark.parametrize("how", ["esc", "refused", "the engine dies"])
async def test_asking_again_in_vain_leaves_the_answer_as_it_was(session, how):
    async with session() as s:
        await s.ask("one")
        before, answer = [*s.chat.session.turns], s.chat.transcript.blocks[-1].run.text
        s.client.auto = False
        await s.pilot.press("ctrl+r")
        if how == "esc":
            await s.pilot.press("escape")
        elif how == "refused":
            s.client.pending.clear()
            s.client.say(Failed("the prompt has 571 tokens, the context holds 512", "shorten it", "usage"))
        else:
            s.client.die()
        await s.settle()
        assert s.chat.session.turns == before and not s.chat.prompt.text
        assert answer and s.chat.transcript.blocks[-1].run.text == answer and answer[:20] in s.shown


async def test_a_long_message_is_shown_whole_beside_a_problem(session):
    async with session(size=(80, 24)) as s:
        await s.ask("far too long", feed=0)
        s.client.pending.clear()
        s.client.say(Failed("the prompt has 571 tokens, the context holds 512", "shorten it", "usage"))
        await s.settle()
        await s.ask("/law foo")
        assert "Shorten it." in s.notice and "law=foo is not one of its values" in s.notice
        await s.pilot.press("escape")
        assert "Shorten it." not in s.notice and "typical" in s.notice


async def test_a_refused_request_is_no_turn(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("far too long", feed=0)
        s.client.pending.clear()
        s.client.say(Failed("the prompt has 571 tokens, the context holds 512", "shorten it", "usage"))
        await s.settle()
        assert "Shorten it." in s.notice and s.chat.prompt.text == "far too long"
        assert len(s.chat.session.turns) == 1 and "far too long" not in s.shown
        assert s.chat.transcript.following


@pytest.mark.parametrize("begun, said", [
    (ANSWER.partition("    i = j")[0], "ends after 15 tokens"), (ANSWER + "And more.\n", "≠ differs"),
], ids=["early", "late"])
async def test_an_answer_that_ends_elsewhere_than_its_baseline_is_not_the_same_text(session, begun, said):
    async with session(client=FakeClient(begun)) as s:
        await s.ask("one")
        s.client.text = ANSWER
        await s.pilot.press("escape", "b")
        s.client.feed()
        await s.settle()
        assert said in s.status + s.notice and "differs at token" in s.shown and "same text" not in s.shown


async def test_baseline_is_measured_beside_the_conversation(session):
    async with session() as s:
        await s.ask("one")
        speed = s.chat.query_one("#speed")
        assert any("not measured" in row for row in speed.text_rows())
        await s.pilot.press("escape", "b")
        assert s.client.requests[-1].engine == "autoregressive"
        s.client.feed(5)
        await s.settle()
        assert "not part of the conversation" in s.status
        assert any("measuring the baseline" in row for row in speed.text_rows())
        s.client.feed()
        await s.settle()
        assert len(s.chat.session.turns) == 1 and "same text" in s.status and "same text ✓" in s.shown
        assert any("tokens/s" in row and "autoregressive, the same prompt" in row for row in speed.text_rows())
        await s.ask("two")
        assert any("not measured" in row for row in speed.text_rows())  # another prompt, another baseline


async def test_baseline_can_be_stopped(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "b")
        s.client.feed(4)
        await s.settle()
        await s.pilot.press("escape")
        await s.settle()
        assert s.chat.session.measuring is None and not s.chat.session.busy
        assert len(s.chat.session.turns) == 1


@pytest.mark.parametrize("how", ["stop", "fail"])
async def test_a_baseline_that_does_not_end_says_nothing_of_the_text(session, how):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "b")
        s.client.feed()
        await s.settle()
        assert "same text" in s.status
        await s.pilot.press("b")
        s.client.feed(4)
        await s.settle()
        if how == "stop":
            await s.pilot.press("escape")
        else:
            s.client.pending.clear()
            s.client.say(Failed("the model failed", "try again"))
        await s.settle()
        assert "same text" not in s.status
        assert ("the measurement was stopped" in s.status) == (how == "stop")
        assert ("The model failed" in s.notice) == (how == "fail")


async def test_again_asks_the_same_with_the_same_seed(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("ctrl+r")
        s.client.feed()
        await s.settle()
        assert s.client.requests[0] == s.client.requests[1] and len(s.chat.session.turns) == 1
        assert s.shown.count("▌") == 0 and s.shown.count("one") >= 1


async def test_new_conversation(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("/new")
        await s.ask("two")
        assert s.client.requests[-1].conversation == (("user", "two"),)
        assert "one" not in s.shown.splitlines()[0]


async def test_showcase_fills_or_sends(session):
    async with session() as s:
        await s.pilot.press("ctrl+o")
        assert isinstance(s.app.screen, ShowcaseScreen)
        await s.pilot.press("down", "space")
        await s.pilot.pause()
        assert s.chat.prompt.text == SHOWCASES[1].prompt and not s.client.requests
        s.chat.prompt.put("")
        await s.pilot.press("f3", "enter")
        await s.pilot.pause()
        assert s.client.requests[0].conversation[-1] == ("user", SHOWCASES[0].prompt)


async def test_an_answer_is_explained(session):
    async with session() as s:
        await s.ask("hello")
        await s.pilot.press("escape", "w")
        await s.pilot.pause()
        assert isinstance(s.app.screen, ExplainScreen)
        assert "A round took" in str(s.app.screen.query_one("#text").content)
        await s.pilot.press("w")
        assert s.app.screen is s.chat


async def test_finished_with_nothing_said_gives_the_prompt_back(session):
    async with session() as s:
        await s.ask("one", feed=0)
        s.client.pending.clear()
        s.client.say(Finished("cancelled", (), ""))
        await s.settle()
        assert s.chat.prompt.text == "one"


async def test_a_letter_meant_for_the_prompt_does_not_cost_the_conversation(session):
    async with session() as s:
        await s.ask("first")
        await s.pilot.press("escape", "n")
        assert len(s.chat.session.turns) == 1 and "n again forgets 1 turn" in s.status
        await s.pilot.press("v", "n")
        assert len(s.chat.session.turns) == 1, "another key in between: asked anew"
        await s.pilot.press("n")
        assert not s.chat.session.turns


async def test_a_word_typed_in_the_text_goes_to_the_prompt_whole(session, monkeypatch):
    monkeypatch.setattr(ChatScreen, "TYPING", 30)  # longer than a busy machine takes from one letter to the next
    async with session() as s:
        await s.ask("one", feed=None)
        for word in ("race", "Why is it", "2+2?", "audit é"):
            s.chat.action_text()
            await s.pilot.press(*("space" if char == " " else char for char in word))
            assert s.chat.prompt.text == word and s.chat.focused is s.chat.prompt and s.app.screen is s.chat
            assert not s.client.audits and s.chat.transcript.view == "outcome"
            s.chat.prompt.put("")


async def test_a_letter_alone_in_the_text_is_a_key(session, monkeypatch):
    monkeypatch.setattr(ChatScreen, "TYPING", 0.15)
    async with session() as s:
        await s.ask("one", feed=None)
        s.chat.action_text()
        await s.pilot.press("v", "v")  # one letter again and again is no word
        await s.pilot.pause(0.3)
        assert s.chat.transcript.view == "source" and not s.chat.prompt.text
        await s.pilot.press("v", "left")  # nor is one before another key
        assert s.chat.transcript.view == "confidence" and s.chat.transcript.cursor is not None


async def test_a_stopped_baseline_is_no_reference(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "b")
        s.client.feed(5)
        await s.settle()
        await s.pilot.press("escape")
        await s.settle()
        assert not s.chat.session.baselines


async def test_a_showcase_begins_a_new_conversation(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("ctrl+o", "enter")
        s.client.feed()
        await s.settle()
        assert [turn.prompt for turn in s.chat.session.turns] == [SHOWCASES[0].prompt]
        assert s.client.requests[-1].conversation == (("user", SHOWCASES[0].prompt),)
        assert len(s.chat.transcript.blocks) == 1


async def test_a_paste_is_inserted_once(session):
    async with session() as s:
        s.chat.prompt.focus()
        s.app.post_message(Paste("one\r\ntwo \x1b[31m"))
        await s.pilot.pause()
        assert s.chat.prompt.text == "one\ntwo ␛[31m"


async def test_an_answer_that_goes_round_in_circles_is_told_with_its_speed(session):
    async with session(client=FakeClient(text="So" + " it is" * 30)) as s:
        await s.ask("Go on.")
        assert "the answer repeats itself, which is easy to draft: its speed says little" in s.status
        rows = s.chat.query_one("#speed").text_rows()
        assert any("! the answer repeats itself (2 tokens over" in row for row in rows)
