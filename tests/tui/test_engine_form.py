"""How the next answers are asked: the engine form, and commands in the prompt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.events import Key, Paste

from engines.errors import UsageProblem
from engines.methods import specs
from engines.request import Request
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.settings import ChatSettings
from spec_tui.tui import slash
from spec_tui.tui.screens.engine import EngineScreen
from spec_tui.tui.widgets.field import Field
from tests.tui.fakes import READY, RETRIEVING, FakeClient, drawn_rows


def test_a_system_prompt_may_have_several_lines():
    assert slash.is_command("/system You are a poet.\nAnswer in rhymes.") and not slash.is_command("/engine\npld")
    settings = slash.execute("/system You are a poet.\nAnswer in rhymes.", ChatSettings(), READY).settings
    assert settings.system == "You are a poet.\nAnswer in rhymes."


@pytest.mark.parametrize("command", ["view", "engine"])
def test_a_command_without_its_name_says_what_to_write(command):
    with pytest.raises(UsageProblem, match=f"^write /{command} NAME"):
        slash.execute(f"/{command} ", ChatSettings(), READY)


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
        ("/nonsense", "F1 lists the commands"), ("/engin pld", "did you mean /engine?"),
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


async def test_a_paste_into_a_field_of_the_engine_dialog_is_inserted_once(session):
    async with session() as s:
        await s.pilot.press("f2")
        field = s.app.screen.query_one(".system Input")
        field.focus()
        await s.pilot.pause()
        s.app.post_message(Paste("be brief"))
        await s.pilot.pause()
        assert field.value == "be brief"
