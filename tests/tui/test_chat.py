"""The chat screen from the outside: keys in, requests and text out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from textual.events import Key, MouseScrollUp, Paste

from engines.methods import specs
from engines.report.events import Failed, Finished, Loading
from engines.report.run_state import fold_all
from engines.request import Request
from engines.wire import read_trace
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.present.token_styles import VIEWS
from spec_tui.session import chat_session
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.kept_settings import keep_view, kept_view
from spec_tui.session.settings import ChatSettings
from spec_tui.tui import slash
from spec_tui.tui.screens.chat import PACE, SHARED, ChatScreen
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.screens.explain import ExplainScreen
from spec_tui.tui.screens.export import CHOICES
from spec_tui.tui.screens.glossary import GlossaryScreen
from spec_tui.tui.screens.help import HelpScreen
from spec_tui.tui.screens.inspector import Inspector
from spec_tui.tui.screens.showcase import ShowcaseScreen
from spec_tui.tui.widgets.field import Field
from tests.tiers import SMALL_FIRST
from tests.tui.fakes import ANSWER, READY, RETRIEVING, FakeClient, drawn_rows


def test_a_system_prompt_may_have_several_lines():
    assert slash.is_command("/system You are a poet.\nAnswer in rhymes.") and not slash.is_command("/engine\npld")
    settings = slash.execute("/system You are a poet.\nAnswer in rhymes.", ChatSettings(), READY).settings
    assert settings.system == "You are a poet.\nAnswer in rhymes."


async def test_ctrl_z_brings_back_what_an_example_replaced(session):
    async with session() as s:
        await s.pilot.press(*"draft", "ctrl+o", "space")
        assert s.chat.prompt.text != "draft"
        await s.pilot.press("ctrl+z")
        assert s.chat.prompt.text == "draft"


async def test_a_prompt_that_is_taken_back_replaces_none_that_is_typed(session):
    async with session(client=FakeClient(auto=False)) as s:
        await s.pilot.press(*"one", "enter", *"two", "escape")
        assert s.chat.prompt.text == "two"


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


async def test_options_change_between_turns(session):
    async with session() as s:
        await s.ask("one")
        await s.ask("/engine pld")
        await s.ask("/set num_tokens=8")
        await s.ask("/temp 0.8")
        await s.ask("/seed 7")
        await s.ask("/law rejection")
        await s.ask("/system Be brief.")
        await s.ask("two")
        request = s.client.requests[-1]
        assert (request.engine, request.options["num_tokens"]) == ("pld", 8)
        assert (request.temperature, request.seed, request.law) == (0.8, 7, "rejection")
        assert request.conversation[0] == ("system", "Be brief.")
        assert len(s.client.requests) == 2


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("/set num_tokens=99", "1..64"),
        ("/engine warp", "engines are: autoregressive"),
        ("/nonsense", "F1 lists them"), ("/engin pld", "did you mean /engine?"),
        ("/temp hot", "0..100"),
        ("/top-p 0", "above 0"),
        ("/forget foo", "it takes nothing, or all"), ("/seed 99999999999999999999999", "is above 9223372036854775807"),
        ("/set temperature=1", "/temp 1 sets it"),
        ("/view sideways", "views are: outcome"),
    ],
)
async def test_a_bad_command_says_what_there_is_and_is_kept(session, command, words):
    async with session(size=(200, 60)) as s:
        await s.ask(command)
        assert words in s.status + s.notice
        assert s.chat.prompt.text == command and not s.client.requests


async def test_tab_completes_commands(session):
    async with session() as s:
        await s.pilot.press("slash", "e", "n", "tab")
        assert s.chat.prompt.text == "/engine "
        await s.pilot.press("tab", "tab")
        assert s.chat.prompt.text == "/engine pld"


async def test_engine_form_sets_everything_and_shows_ranges(session):
    async with session(request=Request((), engine="draft")) as s:
        await s.pilot.press("ctrl+e")
        screen = s.app.screen
        assert isinstance(screen, EngineScreen)
        fields = {f.option.name: f for f in screen.query(Field)}
        fields["num_tokens"].query_one("Input").focus()
        await s.pilot.press("9", "9", "enter")
        assert s.app.screen is screen and fields["num_tokens"].has_class("wrong")
        assert "1..64" in str(screen.query_one("#hint").content)
        await s.pilot.press("backspace", "enter")
        await s.pilot.pause()
        assert s.chat.session.settings.options("draft")["num_tokens"] == 9
        await s.ask("hello")
        assert s.client.requests[0].options["num_tokens"] == 9


@pytest.mark.parametrize("preset", ["auto", "paper"])
async def test_defaults_in_the_engine_form_are_those_of_the_models_preset(session, preset):
    async with session(client=FakeClient(ready=replace(READY, model="smollm2"))) as s:
        await s.ask("/engine admg", feed=0)
        usual = s.chat.session.settings.options("admg")
        assert (usual["alpha"], usual["m"]) == (0.99, 1000)
        await s.ask(f"/set preset={preset}", feed=0)
        await s.ask("/set n=7", feed=0)
        await s.pilot.press("ctrl+e")
        await s.settle()
        await s.pilot.press("ctrl+d")
        await s.settle()
        await s.pilot.press("enter")
        await s.settle()
        assert s.chat.session.settings.options("admg") == usual
        assert not {"alpha", "m", "n"} & s.chat.session.settings.given["admg"].keys()


async def test_a_model_that_is_loaded_while_the_engine_form_is_open_counts(session, monkeypatch, tmp_path):
    """Presets go by its name, and datastores that do not fit it are no longer searched."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))  # where the choice is kept
    client = FakeClient(ready=RETRIEVING)
    async with session(client=client, request=Request((), datastores=("sample", "python-stdlib"))) as s:
        client.auto = False
        s.chat.session.change_models(LoadRequest(model="smollm2"))
        await s.pilot.press("ctrl+e")
        await s.settle()
        client.say(replace(RETRIEVING, model="smollm2", datastores=RETRIEVING.datastores[1:]))
        await s.settle()
        await s.pilot.press("enter")
        await s.settle()
        settings = s.chat.session.settings
        assert settings.options("admg")["m"] == 1000 and settings.datastores == ("python-stdlib",)


async def test_keys_in_a_field_count_in_the_order_typed(session):
    """Also where many arrive at once, as over a slow line: backspaces before the digits after them."""
    async with session() as s:
        await s.pilot.press("ctrl+e")
        await s.settle()
        box = next(field for field in s.app.screen.query(Field) if field.option.name == "max_new_tokens").editor
        box.focus()
        box.value = "1234"
        await s.pilot.press("end")
        for key in ("backspace",) * 4 + ("5", "6"):
            s.app.post_message(Key(key, key if key.isdigit() else None))
        await s.settle()
        await s.settle()
        assert box.value == "56"


@pytest.mark.parametrize("size", [(60, 30), (80, 30), (100, 30), (100, 34)])
async def test_the_engine_form_always_has_room_to_say_what_is_wrong(session, size):
    async with session(size=size) as s:
        await s.ask("/engine hybrid", feed=0)
        await s.pilot.press("ctrl+e")
        await s.settle()
        field = next(field for field in s.app.screen.query(Field) if field.option.name == "c")
        field.editor.value = "999"
        await s.pilot.press("enter")
        await s.settle()
        shown = "\n".join(drawn_rows(s.app.screen))
        assert "c takes 1..256 (default 64)" in shown and "enter uses them" in shown


async def test_enter_on_a_switch_applies_the_form_and_space_changes_it(session):
    async with session(size=(60, 24)) as s:
        await s.ask("/engine hybrid", feed=0)
        await s.pilot.press("ctrl+e")
        await s.settle()
        field = next(field for field in s.app.screen.query(Field) if field.option.name == "model")
        field.editor.focus()
        for key, says in (("", "yes"), ("space", "no")):
            await s.pilot.press(*filter(None, [key]))
            await s.settle()
            assert says in drawn_rows(s.app.screen)[field.region.y], "without colours, in a narrow terminal, too"
        await s.pilot.press("enter")
        await s.settle()
        assert s.app.screen is s.chat and s.chat.session.settings.options("hybrid")["model"] is False


async def test_an_engine_whose_needs_are_not_met_says_why(session):
    ready = replace(READY, draft_model=None, warnings=("two layouts of the weights",),
                    no_draft_model="the draft model has another vocabulary")
    async with session(client=FakeClient(ready=ready)) as s:
        assert s.chat.session.settings.resolved(s.chat.session.ready) == "pld"
        await s.ask("/engine draft")
        assert "another vocabulary" in s.status and "two layouts" not in s.status
        await s.pilot.press("ctrl+e")
        s.app.screen.query_one("#engines").highlighted = [spec.id for spec in specs()].index("draft")
        await s.pilot.pause()
        assert "another vocabulary" in str(s.app.screen.query_one("#about").content)


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


async def test_the_view_keeps_to_the_end_when_an_answer_is_closed(session):
    for count in range(100, 112, 3):
        async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
            await s.ask("one", feed=count)
            await s.pilot.press("escape")
            await s.settle()
            transcript = s.chat.transcript
            assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y


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


async def test_views_cycle_and_colour_the_same_text_and_the_chosen_one_is_remembered(session, tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    first, *others = VIEWS
    keep_view(others[-1])
    async with session(remembers=True) as s:
        await s.ask("one")
        assert s.chat.transcript.view == others[-1], "as it was left"
        await s.pilot.press("escape", "v")
        before, seen = s.shown, []
        for _ in VIEWS:
            seen.append(s.chat.transcript.view)
            assert kept_view() == seen[-1]
            await s.pilot.press("v")
        assert seen == list(VIEWS) and s.chat.transcript.view == first and s.shown == before


async def test_legend_names_only_what_is_there(session):
    async with session() as s:
        await s.ask("/engine autoregressive")
        await s.ask("one")
        legend = s.chat.query_one("#legend").text_rows()[0]
        assert "target" in legend and "corrected" not in legend and "bonus" not in legend
        await s.ask("/view source")
        assert "copied" not in s.chat.query_one("#legend").text_rows()[0]


async def test_token_cursor_moves_and_the_inspector_explains(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "left")
        transcript, run = s.chat.transcript, s.chat.session.turns[0].run
        assert transcript.cursor == (0, len(run.tokens) - 1)
        await s.pilot.press("left_square_bracket")
        assert run.tokens[transcript.cursor[1]].round == len(run.rounds) - 2
        rows = s.chat.query_one("#tree").text_rows()
        assert f"round {run.rounds[-2].index:>3}" in rows[0]
        await s.pilot.press("home")
        assert transcript.cursor == (0, 0)
        await s.pilot.press("down", "up")
        await s.pilot.press("enter")
        assert isinstance(s.app.screen, Inspector)
        assert "prefill" in str(s.app.screen.query_one("#text").content)
        await s.pilot.press("right")
        text = str(s.app.screen.query_one("#text").content)
        assert "proposed by" in text and "target's distribution" in text
        for key, opened in (("question_mark", GlossaryScreen), ("f1", HelpScreen)):
            await s.pilot.press(key)
            assert isinstance(s.app.screen, opened)
            await s.pilot.press("escape")
            await s.pilot.pause()
        await s.pilot.press("escape")
        await s.pilot.pause()
        assert transcript.cursor == (0, 1)
        await s.pilot.press("escape")
        assert transcript.cursor is None and transcript.following


async def test_a_click_on_a_token_inspects_it(session):
    async with session() as s:
        await s.ask("one")
        line = next(y for y, row in enumerate(s.shown.splitlines()) if row.startswith("def merge"))
        await s.pilot.click("#transcript", offset=(3, line))
        await s.pilot.pause()
        assert isinstance(s.app.screen, Inspector) and s.app.screen.cursor == (0, 0)


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


async def test_palette_and_help_open(session):
    async with session() as s:
        await s.pilot.press("ctrl+p")
        await s.pilot.pause()
        await s.pilot.press(*"measure")
        await s.pilot.pause(0.3)
        await s.pilot.press("escape", "escape")
        await s.pilot.pause()
        await s.pilot.press("f1")
        assert isinstance(s.app.screen, HelpScreen)
        text = str(s.app.screen.query_one("#text").content)
        assert "ctrl+j" in text and "/engine" in text and "telemetry" in text
        await s.pilot.press("escape")
        await s.pilot.press("question_mark")
        assert isinstance(s.app.screen, HelpScreen)


async def test_an_answer_is_explained(session):
    async with session() as s:
        await s.ask("hello")
        await s.pilot.press("escape", "w")
        await s.pilot.pause()
        assert isinstance(s.app.screen, ExplainScreen)
        assert "A round took" in str(s.app.screen.query_one("#text").content)
        await s.pilot.press("w")
        assert s.app.screen is s.chat


async def test_commands_of_the_palette_cover_the_keys(session):
    async with session() as s:
        titles = [c.title for c in s.app.get_system_commands(s.chat)]
        for needed in ("Engine and options", "Examples", "Measure baseline", "Theme", "Export", "Quit"):
            assert needed in titles
        assert len(titles) == len(set(titles))


@pytest.mark.parametrize("size", [*SMALL_FIRST, (60, 16)])
async def test_resize_keeps_the_text(session, size):
    async with session() as s:
        await s.ask("one", feed=20)
        await s.pilot.resize_terminal(*size)
        await s.settle()
        s.client.feed()
        await s.settle()
        transcript = s.chat.transcript
        text = "".join(
            ("\n" if line.soft is None else line.soft) + "".join(t.text for t in line.toks if t.style is None)
            for line in transcript.wrapped.lines if line.at[1] >= 0
        )
        assert ANSWER.strip() in text
        assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y


async def test_too_small_asks_to_be_enlarged(session):
    async with session(size=(50, 12)) as s:
        assert s.chat.query_one("#enlarge").display and not s.chat.query_one("#body").display
        await s.pilot.resize_terminal(120, 40)
        await s.pilot.pause()
        assert not s.chat.query_one("#enlarge").display


async def test_panels_toggle_wide_and_enlarge_narrow(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("f5")
        await s.pilot.pause()
        assert not s.chat.query_one("#tree").display
        await s.pilot.press("f5", "f8")
        await s.pilot.pause()
        assert s.chat.query_one("#tree").display and not s.chat.query_one("#speed").display
    async with session(size=(80, 24)) as s:
        await s.ask("one")
        assert s.chat.query_one("#telemetry").display
        await s.pilot.press("escape", "t")
        await s.pilot.pause()
        assert s.chat.query_one("#tree").size.height > 10 and not s.chat.query_one("#left").display
        await s.pilot.press("escape")
        assert s.chat.query_one("#left").display


async def test_a_reader_who_scrolled_up_is_left_alone(session):
    async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
        await s.ask("one", feed=120)
        transcript = s.chat.transcript
        assert transcript.max_scroll_y > 0 and transcript.following
        transcript.focus()
        await s.pilot.press("up", "up", "up")
        at = transcript.scroll_offset.y
        s.client.feed(30)
        await s.settle()
        assert transcript.scroll_offset.y == at and not transcript.following
        await s.pilot.press("end")
        s.client.feed()
        await s.settle()
        assert transcript.scroll_offset.y == transcript.max_scroll_y


async def test_the_title_says_at_once_that_the_wheel_left_the_end(session):
    async with session(size=(100, 30), client=FakeClient(ANSWER * 4)) as s:
        await s.ask("one")
        title = s.chat.query_one("#answer-title")
        assert "following" in title.text_rows()[0]
        wheel = dict(delta_x=0, delta_y=-1, button=0, shift=False, meta=False, ctrl=False)
        s.chat.transcript.post_message(MouseScrollUp(s.chat.transcript, 5, 5, **wheel))
        await s.settle()
        assert "press End to follow" in title.text_rows()[0]
        s.chat.transcript.focus()
        await s.pilot.press("end")
        assert "following" in title.text_rows()[0]


async def test_copy(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "y")
        assert s.app.clipboard == ANSWER
        await s.pilot.press("Y")
        assert "{~~" in s.app.clipboard and "{++" in s.app.clipboard


async def export(s, name):
    """Choose this in the dialog of e; the file that came of it."""
    before = set(Path.cwd().iterdir())
    await s.pilot.press("e")
    await s.pilot.pause()
    await s.pilot.press(*["down"] * list(CHOICES).index(name), "enter")
    for _ in range(3):
        await s.settle()
    (made,) = set(Path.cwd().iterdir()) - before
    return made


async def test_export_of_an_answer(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.ask("one")
        await s.ask("two")
        await s.pilot.press("escape", "home")
        run = s.chat.session.turns[0].run
        made = {name: await export(s, name) for name in ("trace", "md", "html", "cast")}
        trace = read_trace(made["trace"])
        assert not trace.problems and trace.complete and fold_all(trace.events) == run
        assert run.text in made["md"].read_text() and "data-facts" in made["html"].read_text()
        assert '"version": 2' in made["cast"].read_text() and made["cast"].name in s.status
        again = await export(s, "trace")
        assert again != made["trace"] and read_trace(again) == trace, "nothing is overwritten"


async def test_export_that_cannot_be_written(session, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spec_tui.tui.screens.export.save", full)
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "e", "enter")
        await s.settle()
        assert "could not save it: No space left" in s.status


async def test_without_an_answer_the_screen_is_what_there_is(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.pilot.press("escape", "e")
        assert s.app.screen.query_one("#list").option_count == 1
        await s.pilot.press("escape")
        assert not list(tmp_path.iterdir())


async def test_export_of_the_screen(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape")
        picture = await export(s, "svg")
        svg = picture.read_text()
        assert "enter&#160;saves" not in svg, "the dialog is not in the picture"
        assert "@font-face" not in svg and "cdnjs" not in svg and "http://www.w3.org" in svg
        assert str(picture.name) in s.status


async def test_the_cursor_stays_in_sight_and_in_step_at_another_size(session):
    """Also behind a dialog; the line that stands for the panels tells of the cursor's round."""
    async with session(size=(120, 40), client=FakeClient(ANSWER * 4)) as s:
        for prompt in ("one", "two", "three"):
            await s.ask(prompt)
        await s.pilot.press("escape", *["left"] * 20)
        turn, index = s.chat.transcript.cursor
        for size in ((80, 24), (60, 20), (120, 40)):
            await s.pilot.press("enter")
            await s.pilot.resize_terminal(*size)
            await s.pilot.pause()
            assert "token" in s.chat.query_one("#answer-title").text_rows()[0]
            await s.pilot.press("escape")
            await s.pilot.pause()
            transcript = s.chat.transcript
            top = transcript.scroll_offset.y
            shown = [tok for line in transcript.wrapped.lines[top : top + transcript.size.height] for tok in line.toks]
            assert any((tok.turn, tok.index) == (turn, index) for tok in shown), size
            if size[0] < 100:
                run = s.chat.session.turns[turn].run
                number = run.rounds[run.tokens[index].round].index
                assert f"round {number:>4}" in s.chat.query_one("#telemetry").text_rows()[1]


async def test_finished_with_nothing_said_gives_the_prompt_back(session):
    async with session() as s:
        await s.ask("one", feed=0)
        s.client.pending.clear()
        s.client.say(Finished("cancelled", (), ""))
        await s.settle()
        assert s.chat.prompt.text == "one"


async def test_the_client_is_closed_at_the_end(session):
    async with session() as s:
        client = s.client
    assert client.closed


async def test_the_footer_fits_eighty_columns_in_every_place(session):
    from textual.widgets._footer import FooterKey

    async with session(size=(80, 24)) as s:
        await s.ask("one", feed=20)
        for place in ("prompt", "transcript", "tree", "speed"):
            for busy in (True, False):
                if not busy:
                    s.client.feed()
                    await s.settle()
                s.chat.query_one(f"#{place}").focus()
                await s.pilot.pause(0.1)
                keys = list(s.chat.query(FooterKey))
                for _ in range(40):  # the footer is made anew when the keys change
                    if keys:
                        break
                    await s.pilot.pause(0.05)
                    keys = list(s.chat.query(FooterKey))
                assert 0 < len(keys) <= 8
                *others, palette = sorted(keys, key=lambda key: key.region.x)
                assert max(key.region.right for key in others) <= palette.region.x and palette.region.right <= 80


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


async def test_typing_goes_on_after_the_window_was_too_small(session):
    async with session() as s:
        await s.pilot.resize_terminal(50, 12)
        await s.pilot.pause()
        await s.pilot.resize_terminal(120, 40)
        await s.pilot.pause(0.2)
        await s.pilot.press("a", "n")
        assert s.chat.prompt.text == "an"


async def test_a_stopped_baseline_is_no_reference(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("escape", "b")
        s.client.feed(5)
        await s.settle()
        await s.pilot.press("escape")
        await s.settle()
        assert not s.chat.session.baselines


async def test_a_sentence_that_does_not_fit_is_shown_whole_until_esc_or_typing(session):
    async with session(size=(80, 24)) as s:
        for away in ("escape", "x"):
            await s.ask("/law foo")
            assert "foo" in s.notice and "typical" in s.notice and s.chat.query_one("#notice").size.height > 1
            await s.pilot.pause()
            keys = {key.key: key.description for key in s.chat.query("FooterKey")}
            assert keys["escape"] == "Close", "the first esc closes the notice"
            await s.pilot.press(away)
            assert s.notice == "" and s.chat.focused is s.chat.prompt
            s.chat.prompt.put("")
        await s.ask("/engine zz")
        assert "there is no engine 'zz'; engines are: autoregressive" in s.notice
        await s.pilot.press("escape")
        s.chat.prompt.put("")
        await s.ask("/temp 0.5")
        assert s.notice == "" and "0.5" in s.status
        await s.pilot.press("escape", "x")
        await s.pilot.pause(0.3)
        assert "all details; none is shown here" in s.status
        await s.pilot.press("s", "x")
        await s.pilot.pause(0.3)
        assert "the short view" in s.status and "none" not in s.status


async def test_a_showcase_begins_a_new_conversation(session):
    async with session() as s:
        await s.ask("one")
        await s.pilot.press("ctrl+o", "enter")
        s.client.feed()
        await s.settle()
        assert [turn.prompt for turn in s.chat.session.turns] == [SHOWCASES[0].prompt]
        assert s.client.requests[-1].conversation == (("user", SHOWCASES[0].prompt),)
        assert len(s.chat.transcript.blocks) == 1


async def test_the_id_of_a_model_is_not_capitalised(session):
    refused = Failed("nosuch/model is not on the hub", "look at the id", "model")
    async with session(client=FakeClient(ready=refused)) as s:
        assert "! nosuch/model is not on the hub.\n  Look at the id." in s.notice


async def test_help_is_laid_out_for_the_width_it_has(session):
    async with session(size=(80, 24)) as s:
        await s.pilot.press("f1")
        await s.pilot.pause()
        text = s.app.screen.query_one("#text")
        lines = [line.rstrip() for line in str(text.content).split("\n") if line.startswith(" ")]
        assert max(map(len, lines)) <= text.size.width


async def test_keys_are_looked_up_again_only_when_esc_means_something_else(session, monkeypatch):
    async with session() as s:
        looked_up, really = [], s.chat.refresh_bindings
        monkeypatch.setattr(s.chat, "refresh_bindings", lambda: (looked_up.append(s.chat.session.stoppable), really()))
        await s.ask("Why?", feed=3)
        assert s.chat.session.last.run.prefilled is not None and looked_up == [True], "once, when it was sent"
        s.client.feed(None)
        await s.settle()
        assert s.chat.session.last.run.finished is not None and looked_up == [True, False]
        await s.pilot.press("ctrl+r")
        s.client.feed(3)
        await s.settle()
        assert looked_up == [True, False, True], "asked again, it can be stopped again"


async def test_a_paste_is_inserted_once(session):
    async with session() as s:
        s.chat.prompt.focus()
        s.app.post_message(Paste("one\r\ntwo \x1b[31m"))
        await s.pilot.pause()
        assert s.chat.prompt.text == "one\ntwo ␛[31m"


async def test_a_paste_into_a_field_of_the_engine_dialog_is_inserted_once(session):
    async with session() as s:
        await s.pilot.press("f2")
        field = s.app.screen.query_one(".system Input")
        field.focus()
        await s.pilot.pause()
        s.app.post_message(Paste("be brief"))
        await s.pilot.pause()
        assert field.value == "be brief"


async def test_an_answer_that_goes_round_in_circles_is_told_with_its_speed(session):
    async with session(client=FakeClient(text="So" + " it is" * 30)) as s:
        await s.ask("Go on.")
        assert "the answer repeats itself, which is easy to draft: its speed says little" in s.status
        rows = s.chat.query_one("#speed").text_rows()
        assert any("! the answer repeats itself (2 tokens over" in row for row in rows)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 40)])
async def test_rejected_drafts_stay_in_the_text_and_move_no_reader(session, size):
    async with session(size=size) as s:
        for prompt in ("one", "two", "three"):
            await s.ask(prompt)
        await s.pilot.press("escape")
        transcript = s.chat.transcript

        def rows():
            """The tokens of each row of the window, those of the answer."""
            top = transcript.scroll_offset.y
            lines = transcript.wrapped.lines[top : top + transcript.size.height]
            return [[(tok.turn, tok.index) for tok in line.toks if tok.style is None] for line in lines]

        def row_of(token):
            return next(row for row, tokens in enumerate(rows()) if token in tokens)

        def own():
            lines = transcript.wrapped.lines
            return "".join(t.text for line in lines for t in line.toks if t.style is None).replace(" ", "")

        before, answer = s.shown, own()
        for y in (3, transcript.max_scroll_y // 2, transcript.max_scroll_y - 1):
            transcript.scroll_to(y=y, animate=False, immediate=True)
            await s.pilot.pause()
            row, seen = next((row, tokens[0]) for row, tokens in enumerate(rows()) if tokens)
            await s.pilot.press("v")
            await s.pilot.pause()
            assert transcript.view == "rejected" and seen in rows()[row], "the reader's place"
            assert own() == answer and "ghost" in transcript.seen, "the legend names them"
            struck = [t for line in transcript.wrapped.lines for t in line.toks if t.style == "ghost"]
            assert struck and all(t.index >= 0 for t in struck)
            await s.pilot.press(*"vvvv")
            await s.pilot.pause()
            assert transcript.view == "outcome" and s.shown == before and seen in rows()[row]
        await s.pilot.press("end", "v")
        assert transcript.following and transcript.scroll_offset.y == transcript.max_scroll_y
        transcript.select((1, 20))
        row = row_of((1, 20))
        await s.pilot.press(*"vvvv")
        assert transcript.cursor == (1, 20) and row_of((1, 20)) == row, "the cursor stays on its line of the screen"


async def test_p_presents_on_every_screen(session):
    async with session() as s:
        await s.ask("one")
        theme = s.app.theme
        await s.pilot.press("escape", "P")
        await s.pilot.pause()
        assert s.app.theme == "spec-light" and not s.chat.query_one("#top").display and "P ends" in s.status
        figures = [digits.value for digits in s.chat.query("#figures Digits")]
        assert figures[0] == f"{s.app.session.last.run.metrics.tokens_per_second:.1f}" and figures[1] == "-"
        await s.pilot.press("t", "m")
        assert "P ends it" in s.status and s.chat.transcript.is_on_screen
        await s.pilot.press("full_stop")
        await s.pilot.pause()
        assert s.app.screen.has_class("presenting") and s.app.screen is not s.chat
        await s.pilot.press("P")
        await s.pilot.pause()
        assert s.app.theme == theme and not s.app.screen.has_class("presenting")
        await s.pilot.press("escape")
        assert s.app.screen is s.chat and s.chat.query_one("#top").display and not s.chat.has_class("presenting")
        assert "P ends" not in s.status


async def test_a_presenter_sees_rejected_drafts_at_once(session):
    async with session(presenter=True) as s:
        await s.ask("one")
        assert s.chat.transcript.view == "rejected"
        assert any(t.style == "ghost" for line in s.chat.transcript.wrapped.lines for t in line.toks)
        await s.pilot.press("escape", "full_stop", "right")
        await s.pilot.pause()
        await s.pilot.press("end")
        await s.pilot.pause()
        doing = s.app.screen.query_one("#doing")
        rows = doing.rows(*doing.size)
        assert any(style == "ghost" for row in rows for _, style in row)
        await s.pilot.press("v")
        await s.pilot.pause()
        assert doing.rows(*doing.size) != rows


async def test_a_long_stream_keeps_them_as_it_goes_on(session):
    """What is added while it streams is what a later layout of the whole gives."""
    async with session(size=(60, 24), request=Request((), "draft")) as s:
        await s.ask("/view rejected")
        await s.ask("x", feed=1)
        while not s.chat.session.last.run.finished:
            s.client.feed(1)
            await s.settle()
        streamed = [line.toks for line in s.chat.transcript.wrapped.lines]
        assert any(tok.style == "ghost" for toks in streamed for tok in toks)
        s.chat.transcript.rewrap()
        assert [line.toks for line in s.chat.transcript.wrapped.lines] == streamed
