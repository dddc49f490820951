"""The models screen: what is available, what fits, what a download takes; changing a model keeps the conversation."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from engines.errors import ModelUnavailable, RunFailed
from engines.folders import sample_model
from engines.hub import known_models, local_models
from engines.model.loading import no_draft_fits
from engines.progress import Loading
from engines.report.events import DatastoreInfo, Failed, LoadedHead
from spec_tui import tui
from spec_tui.present.audit_text import STRICT
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.session import kept_settings, model_choices, settings
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.models import ANOTHER, JUDGING, ModelsScreen
from spec_tui.tui.widgets.path_input import completed
from tests.tui.fakes import READY, FakeClient
from tests.tui.test_data import until


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A working directory with a model, one of another vocabulary and one without weights; an empty cache."""
    monkeypatch.setattr(local_models, "cached", lambda: [])
    monkeypatch.setattr(local_models, "of_other_programs", lambda: [])
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))  # so the sample is what is loaded without a name
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sample_model("draft"), tmp_path / "mine")
    shutil.copytree(sample_model("draft"), tmp_path / "other")
    (tmp_path / "weightless").mkdir()
    shutil.copy(sample_model("draft") / "config.json", tmp_path / "weightless")
    file = tmp_path / "other" / "tokenizer.json"
    words = json.loads(file.read_text())
    vocabulary = words["model"]["vocab"]
    first, second = list(vocabulary)[300:302]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(words))
    return tmp_path


async def opened(s) -> ModelsScreen:
    await until(s, lambda: s.chat.session.phase == "ready")
    await s.pilot.press("ctrl+l")
    await until(s, lambda: isinstance(s.app.screen, ModelsScreen) and "draft-0" in s.app.screen.rows)
    return s.app.screen


def ids(screen, title):
    """The rows of this title, by role."""
    return {role: key for key, (role, choice) in screen.rows.items() if choice.title.endswith(title)}


def go_to(screen, key):
    options = [screen.listed.get_option_at_index(i).id for i in range(screen.listed.option_count)]
    screen.listed.highlighted = options.index(key)


def here_on(screen):
    """The row that is highlighted."""
    return screen.listed.get_option_at_index(screen.listed.highlighted).id


def prompt(screen, key):
    """What a row says; nothing where it is not there."""
    return str(screen.listed.get_option(key).prompt) if key in screen.rows else ""


def said(s, selector="#said"):
    return str(s.app.screen.query_one(selector).content)


async def test_another_model_keeps_the_conversation(session, here):
    client = FakeClient()
    async with session(client=client) as s:
        await until(s, lambda: s.chat.session.phase == "ready")
        s.chat.session.settings = replace(s.chat.session.settings, datastores=("sample",))
        s.chat.ask("Merge two lists.")
        client.feed()
        await until(s, lambda: not s.chat.session.busy)
        screen = await opened(s)
        assert str(screen.listed.get_option(ids(screen, "sample target")["target"]).prompt).startswith("■")
        assert screen.rows[here_on(screen)][1].title == "sample target" and "11.6M" in said(s, "#about")
        client.ready = replace(READY, model=str(here / "mine"), datastores=(DatastoreInfo("notes", sparse=True),))
        go_to(screen, ids(screen, "mine")["target"])
        await s.pilot.press("enter")
        await until(s, lambda: s.chat.session.phase == "ready" and s.chat.session.ready.model.endswith("mine"))
        assert client.loaded[-1] == LoadRequest(model=str(here / "mine"))
        assert s.chat.session.settings.datastores == ()  # the one that was chosen does not fit
        s.chat.ask("Now sort them.")
        assert [text for role, text in client.requests[-1].conversation if role == "user"] == [
            "Merge two lists.", "Now sort them."]


async def test_a_model_that_cannot_be_loaded_leaves_the_way_back(session, here):
    client = FakeClient()
    async with session(client=client) as s:
        screen = await opened(s)
        client.ready = Failed("the weights are damaged", "download them again", "model")
        go_to(screen, ids(screen, "mine")["target"])
        await s.pilot.press("enter")
        await until(s, lambda: s.chat.session.phase == "failed")
        assert "ctrl+r loads the earlier model again" in s.notice and "tries again" not in s.notice
        client.ready = READY
        await s.pilot.press("ctrl+r")
        await until(s, lambda: s.chat.session.phase == "ready")
        assert client.loaded[-1] == LoadRequest()


async def test_after_the_engine_died_another_model_is_loaded_in_a_fresh_one(session, here):
    async with session() as s:
        s.client.die()
        await s.settle()
        await s.pilot.press("ctrl+l")
        await until(s, lambda: isinstance(s.app.screen, ModelsScreen) and ids(s.app.screen, "mine"))
        go_to(s.app.screen, ids(s.app.screen, "mine")["target"])
        await s.pilot.press("enter")
        await s.settle()
        assert (s.client.restarts, s.client.loaded[-1].model) == (1, str(here / "mine"))
        assert s.chat.session.phase == "ready" and s.notice == ""


async def test_draft_models_are_judged_by_their_tokens(session, here):
    async with session(client=FakeClient()) as s:
        screen = await opened(s)
        first, second = (screen.listed.get_option(f"draft-{number}").prompt.plain for number in (0, 1))
        assert "sample draft" in first and "same tokens" in first and "same tokens" in second
        go_to(screen, ids(screen, "other")["draft"])
        await s.pilot.pause()
        assert "yes: 2 of" in " ".join(said(s, "#about").split()), "what it has can be translated"
        assert "draft" not in ids(screen, "weightless") or screen.rows[ids(screen, "weightless")["draft"]][1].problem
        go_to(screen, ids(screen, "mine")["draft"])
        await s.pilot.press("enter")
        await until(s, lambda: s.app.screen is s.chat)
        assert s.chat.session.client.loaded[-1] == LoadRequest(draft_model=str(here / "mine"))


async def test_heads_are_listed_with_their_target_and_can_be_chosen(session, here):
    client = FakeClient(ready=replace(READY, heads={"Medusa heads": LoadedHead("sample-medusa")}))
    async with session(client=client) as s:
        screen = await opened(s)
        row = {choice.title: (key, str(screen.listed.get_option(key).prompt)) for key, (role, choice)
               in screen.rows.items() if role == "head"}
        assert row["by itself"][1].startswith("■") and row["sample-medusa"][1].startswith("■")
        assert row["sample"][1].startswith("□") and "for sample" in row["sample"][1]
        assert "does not fit" in row["smollm2"][1] and list(row)[-1] == "smollm2-medusa"
        go_to(screen, row["smollm2"][0])
        await s.pilot.press("enter")
        assert "hidden states of 576 numbers, the target has hidden states of 256" in said(s)
        assert s.app.screen is screen and len(client.loaded) == 1
        go_to(screen, row["sample"][0])
        await s.pilot.press("enter")
        await until(s, lambda: s.app.screen is s.chat and s.chat.session.phase == "ready")
        assert client.loaded[-1] == LoadRequest(head="sample")
        assert kept_settings.with_head(LoadRequest()) == LoadRequest(head="sample")
        screen = await opened(s)
        go_to(screen, row["by itself"][0])
        await s.pilot.press("enter")
        await until(s, lambda: s.app.screen is s.chat)
        assert client.loaded[-1] == LoadRequest() == kept_settings.with_head(LoadRequest())


async def test_settings_kept_for_a_model_are_not_those_of_the_next(session, here):
    async with session(client=FakeClient()) as s:
        s.chat.session.kept = kept_settings.KeptSettings("sample", "pld")
        screen = await opened(s)
        go_to(screen, ids(screen, "mine")["draft"])
        await s.pilot.press("enter")
        await until(s, lambda: s.chat.session.phase == "ready" and s.app.screen is s.chat)
        assert s.chat.session.kept is not None
        s.chat.session.change_models(LoadRequest(model=str(here / "mine")))
        assert s.chat.session.kept is None


@pytest.mark.parametrize("gone, said", [("", "Answers use pld,"), ("there is no x", "Note: pld, which is kept")])
async def test_the_first_screen_says_what_is_kept_or_why_it_is_left_out(session, here, gone, said):
    async with session(client=FakeClient()) as s:
        s.chat.session.kept = kept_settings.KeptSettings("sample", "pld", gone=gone)
        s.chat.draw_all()
        await s.settle()
        shown = " ".join(s.shown.split())
        assert said in shown and gone in shown


async def test_the_first_screen_says_that_a_kept_head_is_left_out(session, here):
    kept_settings.keep_head(LoadRequest(model=str(here / "mine"), head="gone"))
    async with session(client=FakeClient()) as s:
        s.chat.session.change_models(LoadRequest(model=str(here / "mine")))
        await until(s, lambda: s.chat.session.phase == "ready")
        s.chat.draw_all()
        await s.settle()
        assert "Note: the head gone, which is kept for this model, is left out: it is not here" in " ".join(
            s.shown.split())


async def test_both_are_marked_before_they_are_loaded(session, here):
    async with session(client=FakeClient()) as s:
        screen = await opened(s)
        go_to(screen, ids(screen, "other")["target"])
        await s.pilot.press("space")
        await until(s, lambda: "does not fit" in prompt(screen, "draft-0"))  # judged anew, by the marked target
        assert str(screen.listed.get_option(ids(screen, "other")["target"]).prompt).startswith("■")
        own = str(screen.listed.get_option(ids(screen, "sample draft")["draft"]).prompt)
        assert "does not fit" in own and own.startswith("□"), "it is not the one that would be loaded"
        assert len(s.chat.session.client.loaded) == 1
        await s.pilot.press("enter")
        assert s.chat.session.client.loaded[-1].model == str(here / "other")


async def test_what_is_found_too_late_is_not_shown(session, here, monkeypatch):
    go, drafts = threading.Event(), model_choices.drafts

    def slow_for_the_first(target, available):
        late = target.name != str(here / "other")
        return (go.wait(20) and drafts(target, available)) if late else drafts(target, available)

    def to_download(name, load):
        if name == "owner/first" and go.wait(20):
            raise ModelUnavailable("owner/first is not on the hub", "check its name")
        return 1

    async with session(client=FakeClient()) as s:
        monkeypatch.setattr(model_choices, "drafts", slow_for_the_first)
        monkeypatch.setattr(model_choices, "to_download", to_download)
        await until(s, lambda: s.chat.session.phase == "ready")
        await s.pilot.press("ctrl+l")
        await until(s, lambda: isinstance(s.app.screen, ModelsScreen) and ids(s.app.screen, "other"))
        screen = s.app.screen
        go_to(screen, ids(screen, "other")["target"])
        await s.pilot.press("space")
        await until(s, lambda: "does not fit" in prompt(screen, "draft-0"))
        screen.query_one(Input).focus()
        screen.query_one(Input).value = "owner/first"
        await s.pilot.press("enter")
        screen.query_one(Input).value = "owner/second"
        await s.pilot.press("enter")
        await until(s, lambda: "owner/second" in said(s) and "to download" in said(s))
        go.set()
        await s.pilot.pause(0.3)
        assert "owner/second" in said(s) and "does not fit" in prompt(screen, "draft-0")


async def test_a_model_of_the_hub_says_its_download_first(session, monkeypatch):
    sizes = {"owner/name": 270_000_000}

    def to_download(name, load):
        if name not in sizes:
            raise ModelUnavailable(f"{name} is not on the hub", "check its name, or --allow-pickle")
        return sizes[name]

    monkeypatch.setattr(model_choices, "to_download", to_download)
    async with session(client=FakeClient()) as s:
        screen = await opened(s)
        await s.pilot.press("tab", *"owner/nme", "enter")
        await until(s, lambda: "is not on the hub: check its name" in said(s))
        assert "--" not in said(s)
        screen.query_one(Input).value = "owner/name"
        await s.pilot.press("enter")
        await until(s, lambda: "270 MB to download; enter again downloads it" in said(s))
        assert len(s.chat.session.client.loaded) == 1
        await s.pilot.press("enter")
        await until(s, lambda: s.app.screen is s.chat)
        assert s.chat.session.client.loaded[-1].model == "owner/name"


@pytest.mark.parametrize("key", ["f1", "f12"])
async def test_a_model_that_is_found_under_another_dialog_closes_both(session, here, monkeypatch, key):
    go = threading.Event()
    monkeypatch.setattr(model_choices, "to_download", lambda *given: 0 if go.wait(20) else 1)
    async with session(client=FakeClient()) as s:
        await opened(s)
        await s.pilot.press("tab", *"./mine", "enter", key)
        assert len(s.app.screen_stack) == 3
        go.set()
        await until(s, lambda: s.chat.session.client.loaded[-1].model == "./mine")
        await s.pilot.pause()
        assert s.app.screen is s.chat


async def test_while_it_looks_it_says_so_and_a_path_can_be_typed(session, here, monkeypatch):
    go, drafts = threading.Event(), model_choices.drafts
    monkeypatch.setattr(model_choices, "drafts", lambda *given: go.wait(20) and drafts(*given))
    async with session(client=FakeClient()) as s:
        await until(s, lambda: s.chat.session.phase == "ready")
        await s.pilot.press("ctrl+l")
        await until(s, lambda: isinstance(s.app.screen, ModelsScreen) and s.app.screen.rows)
        screen = s.app.screen
        listed = [screen.listed.get_option_at_index(i).prompt for i in range(screen.listed.option_count)]
        assert sum(JUDGING in str(prompt) for prompt in listed) == 2
        go.set()
        await until(s, lambda: "draft-0" in screen.rows)
        go_to(screen, "draft-another")
        await s.pilot.press("enter", *"./mi")
        assert screen.query_one(Input).placeholder == ANOTHER["draft"] and screen.focused is screen.query_one(Input)
        await s.pilot.press("tab")
        assert screen.query_one(Input).value == "./mine/"
        await s.pilot.press("enter")  # once: it is on this machine
        await until(s, lambda: s.app.screen is s.chat)
        assert s.chat.session.client.loaded[-1] == LoadRequest(draft_model="./mine/")


def test_leaving_does_not_wait_for_what_is_looked_up(here, monkeypatch):
    go, found = threading.Event(), []
    monkeypatch.setattr(model_choices, "targets", lambda load: found.append(go.wait(20)) or ())

    async def leave() -> None:
        app = SpecTui(FakeClient(), LoadRequest())
        async with app.run_test() as pilot:
            await pilot.press("ctrl+l")
            await pilot.pause()
            assert isinstance(app.screen, ModelsScreen)

    asyncio.run(leave())  # it waits for the threads of its own
    assert not found
    go.set()


def test_a_path_is_completed_as_far_as_it_is_certain(here, monkeypatch):
    (here / "tiny-a.gguf").write_bytes(b"")
    (here / "tiny-b.gguf").write_bytes(b"")
    (here / "tiny.txt").write_bytes(b"")
    monkeypatch.setenv("HOME", str(here))
    typed = {"ti": "tiny-", "mi": "mine/", f"{here}/we": f"{here}/weightless/", "~/ot": "~/other/", "tiny-": None,
             "no/such": None, "~nobody-of-that-name/x": None, "owner/name": None, "a\0": None}
    assert {name: completed(name) for name in typed} == typed


@pytest.mark.parametrize("said, shown", [
    (no_draft_fits("m"), "no draft model here fits m: choose a draft model (ctrl+l)"),
    (settings._LOADED["draft model"], "no draft model is loaded: choose one (ctrl+l)"),
    ("give --head one that was trained for this model, or choose another engine",
     "choose a draft head (ctrl+l), or choose another engine"),
    ("choose a smaller model or --dtype bfloat16", "choose a smaller model"),
    ("load it here to choose an engine", "load it here to choose an engine (ctrl+l)"),
    ("build one (spec-tui datastore build --kind dense)",
     "build one (d, then n, or spec-tui datastore build --kind dense)"),
    ("make it a lane of a race, or start with --backend llama.cpp --model FILE.gguf",
     "make it a lane of a race (r)"),
    ("give --draft-model or --head, or rest", "choose a draft model or head (ctrl+l), or rest"),
    ("reinstall spec-tui, or give --model", "reinstall spec-tui, or choose a model (ctrl+l)"),
    ("reinstall it: pip install --force-reinstall rich", "reinstall it: pip install --force-reinstall rich"),
    ("it exists; --allow-pickle reads it", "it exists; the start option allow-pickle reads it"),
    ("with --strict all engines write one text",
     "started with the option strict, all engines write one text"),
    (STRICT, "started with the option strict, every engine writes the same text"),
    ("--kind: build one (n, or spec-tui datastore build NAME --kind dense)",
     "the start option kind: build one (n, or spec-tui datastore build NAME --kind dense)"),
])
def test_no_flag_is_named_on_a_screen(said, shown):
    assert on_screen(said) == shown and on_screen(shown) == shown
    assert failure(RunFailed(said, said)) == f"{shown}{'; ' if ': ' in said else ': '}{shown}"


def test_a_form_names_its_fields_as_they_are():
    assert on_screen("build from less: --limit", {"limit"}) == "build from less: limit"


def test_every_screen_words_problems_by_that():
    by_hand = re.compile(r"\.message\}.*\.hint\}|one_line\([\w.]+\.hint\)")
    assert [path.name for path in Path(tui.__file__).parent.rglob("*.py") if by_hand.search(path.read_text())] == []


async def test_a_known_model_that_is_not_here_says_what_it_takes_and_is_fetched(session, monkeypatch):
    monkeypatch.setattr(known_models, "ram", lambda: (4 * 10**9, 2 * 10**9))
    client = FakeClient()
    async with session(client=client) as s:
        screen = await opened(s)
        go_to(screen, ids(screen, "qwen-coder")["target"])
        await s.pilot.pause()
        about = " ".join(said(s, "#about").split())
        assert "writes code" in about and "1.61 GB, needs" in about and "Apache-2.0" in about
        await s.pilot.press("enter")
        assert s.app.screen is screen and len(client.loaded) == 1
        assert "1.61 GB to download (Apache-2.0); enter again downloads it" in said(s)
        assert "Not enough here: only 2 GB of memory are free" in said(s)
        client.ready = Loading("asking the hub for qwen-coder")
        await s.pilot.press("enter")
        await until(s, lambda: s.app.screen is s.chat and s.chat.session.downloading)
        assert client.loaded[-1] == LoadRequest(model="qwen-coder", fetch=True) and s.chat.session.stoppable
        await s.pilot.press("escape")
        assert client.cancels == 1


async def test_what_is_loaded_is_not_loaded_again(session):
    async with session(client=FakeClient()) as s:
        screen = await opened(s)
        await s.pilot.press("enter")
        assert s.app.screen is screen and "loaded already" in said(s)
        await s.pilot.press("d")
        await until(s, lambda: type(s.app.screen).__name__ == "DataScreen")


async def test_a_model_of_an_unknown_user_does_not_hide_the_others(session, here):
    async with session(client=FakeClient()) as s:
        await until(s, lambda: s.chat.session.phase == "ready")
        s.chat.session.load_request = LoadRequest(model="~nobody-of-that-name/x")
        await s.pilot.press("ctrl+l")
        await until(s, lambda: isinstance(s.app.screen, ModelsScreen) and ids(s.app.screen, "mine"))


def test_a_file_is_not_called_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.gguf").write_bytes(b"GGUF")
    (found,) = (choice for choice in model_choices.targets(LoadRequest()) if choice.folder == tmp_path / "cut.gguf")
    assert found.origin == "a local file"
