"""The Data screen with a real engine behind it: builds, stopped and gone on with; probes, removals; its words."""

from __future__ import annotations

import shlex
import threading
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.widgets import Static

from engines.datastores.building import build_journal
from engines.datastores.building import sparse_build as building
from engines.datastores.building.build_datastore import build_datastore
from engines.datastores.building.build_spec import BuildSpec, unfinished_build
from engines.datastores.building.text_files import text_files
from engines.datastores.datastore_events import (
    BuildEstimate,
    Building,
    Built,
    DatastoreList,
    Estimated,
    Probed,
    ProbeDraft,
)
from engines.datastores.storage import catalog, manifest
from engines.progress import BuildProgress
from engines.report.events import DatastoreInfo, Draft, Failed, Origin, Passage, Retrieval
from spec_tui.present.text import cells
from spec_tui.session import shell_lines as command
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.datastore_jobs import Refused
from spec_tui.session.engine_commands import BuildDatastore, EstimateDatastore, LoadRequest
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.screens.data import DatastoreRow, row_facts, source_words
from spec_tui.tui.screens.probe import ProbePanel
from tests.datastores.conftest import home
from tests.session.inprocess import InProcessClient
from tests.tui.fakes import READY, RETRIEVING, FakeClient, entries

__all__ = ["home"]  # a fixture
HOSTILE = "a\x1b]0;owned\x07b\x1b[31mc\x9b2Jd\u202ee"


@pytest.fixture
def texts(tmp_path):
    """Two text files, one in a folder with a blank in its name."""
    folder = tmp_path / "my texts"
    folder.mkdir()
    (folder / "one.txt").write_text("the cat sat on the mat, the cat sat on the hat\n" * 3)
    (tmp_path / "two.py").write_text("def add(a, b):\n    return a + b\n" * 4)
    return f"'{folder}' {tmp_path / 'two.py'}"


@pytest.fixture
def engine(tiny):
    """A client with the tiny model behind it, on a thread."""
    client = InProcessClient(lambda *_: tiny)
    yield client
    client.close()


async def until(s, condition, timeout=40.0):
    """Wait while the application goes on by itself."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "\n".join(str(w.content) for w in s.app.screen.query(Static))
        await s.pilot.pause(0.01)
    await s.pilot.pause()


async def opened(s):
    """The Data screen, its engine loaded and asked."""
    await until(s, lambda: s.chat.session.phase == "ready")
    s.chat.action_data()
    await s.pilot.pause(0.05)
    return s.app.screen


def said(s, selector="#chosen"):
    return str(s.app.screen.query_one(selector).content)


def fill(screen, **values):
    for name, value in values.items():
        screen.query_one(f"#{name}").put(value)


async def begin_build(pilot, client, spec):
    """Through the form, with an engine that answers at once what it takes."""
    await pilot.press("n")
    fill(pilot.app.screen, name=spec.name, **{"from": shlex.join(spec.sources)})
    await pilot.pause()
    await pilot.press("enter")
    client.say(Estimated(spec.name, BuildEstimate(100, 600, 600, 3.0), 10**11))
    pilot.app.screen_stack[0].pump()
    await pilot.pause(0.15)
    await pilot.press("enter")
    await pilot.pause()


async def build(s, name, sources, **more):
    """Through the form, until it is built."""
    await s.pilot.press("n")
    form = s.app.screen
    fill(form, name=name, **{"from": sources}, **more)
    await s.pilot.pause()
    await s.pilot.press("enter")
    await until(s, lambda: form.datastore_jobs.estimated is not None and "enter builds it" in said(s, "#takes"))
    assert "tokens" in said(s, "#takes")
    await s.pilot.press("enter")
    await until(s, lambda: isinstance(form.datastore_jobs.ended, Built | Refused) and not form.datastore_jobs.work)
    await until(s, lambda: name in said(s))


async def test_what_is_built_here_can_be_searched_at_once(session, engine, texts):
    async with session(client=engine) as s:
        screen = await opened(s)
        await build(s, "notes", texts)
        assert isinstance(screen.datastore_jobs.ended, Built) and s.app.screen is screen and screen.row.name == "notes"
        assert "notes is built" in said(s) and "yes: sparse" in said(s, "#about") and "2 files" in said(s, "#about")
        await until(s, lambda: screen.searched == ("notes",))  # the only one that fits: the default
        await s.pilot.press("space", "enter")
        assert s.chat.session.settings.searched(s.chat.session.ready) == ("notes",)
        s.chat.session.settings = s.chat.session.settings.with_engine("rest", s.chat.session.ready)
        s.chat.ask("the cat sat")
        await until(s, lambda: not s.chat.session.busy)
        run = s.chat.session.last.run
        assert run.finished is not None and run.started.datastores == ("notes",)


async def test_no_build_begins_during_an_answer_and_what_is_said_is_true_of_this_screen(session):
    async with session() as s:
        await s.ask("one", feed=5)
        s.chat.action_data()
        await s.pilot.pause(0.05)
        screen = s.app.screen
        await s.pilot.press("n")
        assert s.app.screen is screen and "Still answering: wait for it, or stop it in the chat" in said(s)
        await s.pilot.press("escape")
        assert s.app.screen is s.chat and s.chat.session.busy, "esc closed the screen and stopped nothing"


async def test_a_datastore_built_elsewhere_is_known_when_the_screen_opens(session, engine, tiny, tmp_path, texts):
    async with session(client=engine) as s:
        screen = await opened(s)
        assert "There are no datastores yet" not in said(s, "#about") and "other" not in screen.rows
        await s.pilot.press("escape")
        build_datastore("other", text_files([tmp_path / "two.py"]), tiny.tokenizer)
        assert not any("other" in info.name for info in s.chat.session.ready.datastores)
        screen = await opened(s)
        await until(s, lambda: DatastoreInfo("other", sparse=True, default=True) in s.chat.session.ready.datastores)
        screen.listed.highlighted = list(screen.rows).index("other")
        await s.pilot.pause(0.15)
        assert "yes: sparse" in said(s, "#about")


def content(folder):
    """Every file of a datastore, and its manifest but for time and name."""
    data = {p.name: p.read_bytes() for p in folder.iterdir() if p.name != manifest.FILE}
    return data, replace(manifest.read_manifest(folder), created="", name="")


async def test_a_build_is_stopped_and_gone_on_with(session, engine, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "many"
    folder.mkdir()
    for n in range(40):
        (folder / f"{n:02}.txt").write_text(f"this is file number {n}\n" * 2)
    monkeypatch.setattr(building, "CHARACTERS", 20)
    monkeypatch.setattr(build_journal, "EVERY", -1.0)
    whole = content(build_datastore("whole", text_files([folder]), tiny.tokenizer).folder)
    commit, gate, commits = building.BuildJournal.commit, threading.Event(), iter(range(1000))

    def slow(*args):
        commit(*args)
        time.sleep(0.03)
        if next(commits) >= 10:
            gate.wait(30)  # the build waits for the test, whatever else the machine does

    monkeypatch.setattr(building.BuildJournal, "commit", slow)
    async with session(client=engine) as s:
        screen = await opened(s)
        await s.pilot.press("n")
        fill(s.app.screen, name="cut", **{"from": str(folder)})
        await s.pilot.press("enter")
        await until(s, lambda: screen.datastore_jobs.estimated is not None)
        await s.pilot.press("enter")
        await until(s, lambda: "tokens" in screen.datastore_jobs.stages)
        await until(s, lambda: screen.datastore_jobs.stages["tokens"].done > 0)
        await until(s, lambda: "building" in str(screen.listed.get_option(screen.row.id).prompt))
        assert "▶ tokens" in said(s, "#about") and " of " in said(s, "#about")
        assert "Still building cut" in s.chat.session.send("hello")  # one thing at a time
        await s.pilot.press("escape")
        assert s.app.screen is screen and screen.datastore_jobs.work.stopping, "escape stops first"
        gate.set()
        await until(s, lambda: not screen.datastore_jobs.work)
        await until(s, lambda: "R continues it" in said(s))
        assert screen.row.unfinished and "R continues" in said(s, "#about")
        assert str(folder) in "".join(said(s, "#about").split())
        assert unfinished_build("cut") == BuildSpec("cut", (str(folder),))
        await s.pilot.press("R")
        await until(s, lambda: isinstance(screen.datastore_jobs.ended, Built))
        assert content(catalog.find("cut")) == whole
        await until(s, lambda: DatastoreInfo("cut", sparse=True, default=True) in s.chat.session.ready.datastores)


async def test_removing_takes_a_second_press_and_is_at_once_known(session, engine, tiny, tmp_path, texts):
    for name in ("gone", "kept"):
        build_datastore(name, text_files([tmp_path / "two.py"]), tiny.tokenizer)
    async with session(client=engine) as s:
        await until(s, lambda: s.chat.session.phase == "ready")
        s.chat.session.settings = replace(s.chat.session.settings, datastores=("gone", "kept"))
        screen = await opened(s)
        await until(s, lambda: "gone" in screen.rows)
        screen.listed.highlighted = list(screen.rows).index("gone")
        await s.pilot.press("minus")
        assert "- again removes gone" in said(s)
        s.chat.session.ready = replace(s.chat.session.ready, threads=9)  # as when the engine has looked at the disk
        await s.pilot.pause(0.3)
        assert "- again removes gone" in said(s), "what a second press does stays in sight"
        await s.pilot.press("down", "up", "minus")
        assert catalog.find("gone"), "another key takes the first press back"
        await s.pilot.press("minus")
        await until(s, lambda: said(s) == "removed gone")
        assert "gone" not in screen.rows and screen.chosen == ["kept"]
        assert s.chat.session.settings.datastores == ("kept",)
        assert s.chat.session.ready.datastores[0] == DatastoreInfo("kept", sparse=True, default=True)
        screen.listed.highlighted = list(screen.rows).index("python-stdlib")
        await s.pilot.press("minus")
        assert "built when it is first searched" in said(s)


def drafts(s):
    """What the probe shows."""
    return "\n".join(s.app.screen.query_one(ProbePanel).text_rows())


async def test_a_probe_says_what_would_be_drafted_and_from_where(session, engine, tiny, tmp_path):
    (tmp_path / "bad.txt").write_text(f"before {HOSTILE} after\n")
    (tmp_path / "two.py").write_text("def add(a, b):\n    return a + b\n")
    build_datastore("notes", text_files([tmp_path / "two.py", tmp_path / "bad.txt"]), tiny.tokenizer)
    async with session(client=engine, size=(80, 24)) as s:
        screen = await opened(s)
        await until(s, lambda: next(iter(screen.rows), None) == "notes")  # the engine has told of it
        await s.pilot.press("home", "slash")
        assert "Type a text" in drafts(s)
        await s.pilot.press(*"def add(")
        await until(s, lambda: "match 8" in drafts(s))
        found = drafts(s)
        assert "match 8 ‹def add(›" in found and "1 hit, 1 used" in found and " ms" in found and "two.py:1" in found
        assert "◌ (" in found and "○ a 1.0R" in found
        fill(s.app.screen, **{"probe-text": "before "})
        s.app.screen._draw()
        assert "probing …" in drafts(s) and "two.py:1" in drafts(s), "the drafts of the text before are marked"
        await until(s, lambda: "bad.txt" in drafts(s) and "probing" not in drafts(s))
        found = drafts(s)
        assert "\u241b" in found and not any(c in found for c in "\x1b\x07\x9b\u202e")
        fill(s.app.screen, **{"probe-text": HOSTILE})
        await until(s, lambda: screen.datastore_jobs.probed.text == HOSTILE)
        fill(s.app.screen, **{"probe-text": "zzz", "probe-prompt": "qqq"})
        await until(s, lambda: screen.datastore_jobs.probed.prompt == "qqq")
        await until(s, lambda: "no match for the end of the text" in drafts(s))
        await s.pilot.press("ctrl+y")
        assert "spec-tui datastore probe --datastore notes --prompt=qqq" in said(s, "#hint")
        await s.pilot.press("escape")
        assert s.app.screen is screen and not s.chat.session.busy


WRONG = (
    ({"name": "No", "from": "x"}, "cannot be the name"),
    ({"name": "a", "from": ""}, "nothing to build from"),
    ({"name": "a", "from": "'open"}, "quotation mark"),
    ({"name": "a", "from": "/no/such/place"}, "/no/such/place does not exist"),
    ({"name": "a", "from": "model-answers"}, "needs questions"),
    ({"name": "a", "from": "model-answers x", "prompts": "p"}, "cannot be combined"),
    ({"name": "taken", "from": "x"}, "there is a datastore taken"),
)


async def test_the_form_says_what_is_wrong_and_builds_nothing(session, engine, tiny, tmp_path, home):
    (tmp_path / "x").write_text("some text")
    build_datastore("taken", text_files([tmp_path / "x"]), tiny.tokenizer)
    async with session(client=engine) as s:
        screen = await opened(s)
        await s.pilot.press("n")
        for values, words in WRONG:
            fill(s.app.screen, **{"prompts": "", **values})
            await s.pilot.pause()
            await s.pilot.press("enter")
            await until(s, lambda words=words: words in said(s, "#takes").replace("\n", " "))
            assert not screen.datastore_jobs.work and [p.name for p in home.iterdir() if p.is_dir()] == ["taken"]
        await s.pilot.press("escape")
        assert s.app.screen is screen


async def test_the_form_grows_for_model_answers_and_forgets_an_estimate_of_something_else(session, texts):
    client = FakeClient()
    async with session(client=client) as s:
        await s.pilot.press("escape", "d", "n")
        form = s.app.screen
        assert not form.query_one("#prompts").display
        fill(form, name="notes", **{"from": texts})
        await s.pilot.press("enter")
        await s.pilot.pause()
        assert isinstance(client.told[-1], EstimateDatastore) and client.told[-1].spec.name == "notes"
        client.say(Estimated("notes", BuildEstimate(100, 600, 600, 3.0), 50, {"binary": 2}))
        await s.settle()
        await s.pilot.pause(0.15)
        assert "about 100 tokens" in said(s, "#takes") and "2 binary" in said(s, "#takes")
        assert "only 50 bytes left" in said(s, "#takes")
        fill(form, name="others")
        await s.pilot.press("enter", "escape")
        assert client.cancels == 1 and s.app.screen is form, "escape stops the estimate first"
        client.say(Failed("the estimate was stopped", "", "cancelled"))
        await s.settle()
        await s.pilot.pause(0.15)
        assert said(s, "#takes") == "the estimate was stopped"
        fill(form, **{"from": "model-answers"})
        await s.pilot.pause()
        assert form.query_one("#prompts").display and "enter estimates size and time" in said(s, "#takes")
        await s.pilot.press("enter")
        assert not any(isinstance(command, BuildDatastore) for command in client.told)
        assert "needs questions" in said(s, "#takes")


async def test_an_engine_that_dies_during_a_build_says_so_and_can_be_restarted(session):
    client = FakeClient()
    async with session(client=client) as s:
        await s.pilot.press("escape", "d")
        screen = s.app.screen
        await begin_build(s.pilot, client, BuildSpec("notes", ("/x",)))
        assert client.told[-1] == BuildDatastore(BuildSpec("notes", ("/x",)))
        client.say(Building("notes", BuildProgress("tokens", 10, 100, "bytes", 5.0, 18.0)))
        await s.settle()
        await s.pilot.pause(0.15)
        assert "building 10%" in str(screen.listed.get_option("notes.partial").prompt)
        assert "18 s left" in said(s, "#about") and "building notes" in s.status and s.chat.session.stoppable
        client.die()
        await s.settle()
        await s.pilot.pause(0.15)
        assert "the engine process ended" in said(s) and not screen.datastore_jobs.work
        assert "notes.partial" not in screen.rows
        await s.pilot.press("n")
        assert s.app.screen is screen and "not loaded" in said(s)


async def test_a_build_goes_on_behind_the_chat(session):
    client = FakeClient()
    async with session(client=client) as s:
        await s.pilot.press("escape", "d")
        await begin_build(s.pilot, client, BuildSpec("notes", ("/x",)))
        await s.pilot.press("d")
        client.say(Building("notes", BuildProgress("tokens", 10, 100, "bytes")))
        await s.settle()
        assert s.app.screen is s.chat and "building notes" in s.status and "esc stops" in s.status
        await s.ask("hello", feed=0)
        assert not client.requests and "Still building notes" in s.status + s.notice
        client.say(Built("notes", "sparse", 5, 1, 0, 30, 0.5), DatastoreList((DatastoreInfo("notes", sparse=True),)))
        await s.settle()
        assert "notes is built" in s.status
        s.chat.say("something else")
        s.chat.session.datastore_jobs.refresh()
        client.say(DatastoreList((DatastoreInfo("notes", sparse=True),)))  # as when the screen opens
        await s.settle()
        assert "something else" in s.status
        assert s.chat.session.ready.datastores == (DatastoreInfo("notes", sparse=True),)
        await s.ask("hello")
        assert len(client.requests) == 1


async def test_an_estimate_that_does_not_stop_is_left(session, texts):
    async with session() as s:
        await s.pilot.press("escape", "d", "n")
        fill(s.app.screen, name="notes", **{"from": texts})
        await s.pilot.press("enter", "escape")
        s.chat.session.jobs.at_work.heard -= 6
        await s.pilot.pause(0.15)
        assert "The engine does not answer: in the chat ctrl+r restarts it" in said(s, "#takes")
        await s.pilot.press("escape", "escape")
        assert s.app.screen is s.chat


async def test_an_estimate_after_the_engine_died_says_so(session, engine, texts):
    async with session(client=engine) as s:
        await opened(s)
        await s.pilot.press("n")
        fill(s.app.screen, name="notes", **{"from": texts})
        engine.close()
        await s.pilot.press("enter")
        await until(s, lambda: "the engine process ended unexpectedly" in said(s, "#takes"))


async def test_a_build_is_stopped_from_the_chat_too_and_one_that_breaks_says_why(session):
    client = FakeClient()
    async with session(client=client) as s:
        s.chat.action_data()
        await s.pilot.pause()
        await begin_build(s.pilot, client, BuildSpec("notes", ("/x",)))
        await s.pilot.press("d", "escape")
        assert client.cancels == 1 and "stopping notes" in s.status
        client.say(Failed("the build was stopped", "what is done stays", "cancelled"))
        await s.settle()
        assert "what is done stays" in s.status and not s.chat.session.busy
        s.chat.session.datastore_jobs.build(BuildSpec("notes", ("/x",)))
        client.say(Failed("the engine broke: KeyError", "this is a bug", "bug"))
        await s.settle()
        assert not s.chat.session.busy and s.chat.session.phase == "ready" and "engine broke" in s.status + s.notice


# -- parts ------------------------------------------------------------------------------------------


def test_of_questions_that_come_faster_than_answers_the_last_is_asked():
    client = FakeClient()
    made = ChatSession(client, LoadRequest(), ChatSettings())
    for text in ("a", "ab", "abc"):
        made.datastore_jobs.probe(("notes", text, None))
    assert [command.text for command in client.told] == ["a"]
    client.say(Failed("no"))
    made.pump()
    assert [command.text for command in client.told] == ["a", "abc"]
    client.say(Probed("notes", "abc", None, 3))
    made.pump()
    assert [command.text for command in client.told] == ["a", "abc"] and made.datastore_jobs.probed.text == "abc"


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["kind", "parts", "roots", "temperature", "prompts", "x"]), inner, max_size=4))


@given(JSON, st.sampled_from(["joined", "files", "model-answers", None]))
def test_sources_are_told_whatever_a_manifest_says(found, kind):
    sources = {**found, "kind": kind} if isinstance(found, dict) and kind else found
    assert isinstance(source_words(sources), str)


@given(st.text(max_size=40), st.text(max_size=40), st.integers(1, 60), st.integers(20, 200))
def test_what_a_probe_shows_fits_and_is_harmless(text, source, count, width):
    passage = Passage("n", source, 3, text, text, float(count))
    draft = Draft(
        tokens=(0, 1, 2, 3), parents=(-1, 0, 1, 2), pieces=(text,) * 4, probs=(1.0,) * 4, origin=(0,) * 4,
        origins=(Origin("retrieval", 0, source, 2, "n", 3, 0),),
    )
    panel = ProbePanel()
    panel.show(Probed("n", text, None, 3, (text,) * 3, (
        ProbeDraft("m", "Method", draft, Retrieval(0.001, 2, count, count, (), (passage,)), text),)))
    for row in panel.rows(width, 0):
        line = "".join(words for words, _ in row)
        assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line) and cells(line) <= max(width, 60)


def test_a_hostile_manifest_is_told_in_one_line_each():
    order = BuildSpec("n", (HOSTILE,), prompts=HOSTILE)
    shown = str(row_facts(DatastoreRow("n", None, True, order), session_while_building(order), 40))
    assert not any(c in shown for c in "\x1b\x07\x9b\u202e") and "\u241b" in shown


def session_while_building(order):
    """As while that order is built, at a stage of a hostile name."""
    client = FakeClient()
    made = ChatSession(client, LoadRequest(), ChatSettings())
    made.datastore_jobs.build(order)
    client.say(Building("n", BuildProgress(HOSTILE, 1, 3, "bytes")))
    made.pump()
    return made


def test_a_copied_command_line_orders_the_same(monkeypatch):
    from engines.datastores.search.reduction import Recipe
    from spec_tui.cli import call, datastore

    orders = []

    def note(order, load, fresh, replace):
        orders.append((order, load))
        raise KeyboardInterrupt

    monkeypatch.setattr(datastore, "_build", note)
    load = LoadRequest(model="some/model", dtype="bfloat16")
    for order in (
        BuildSpec("a", ("/x y/z", "python-stdlib"), "both", limit=5, recipe=Recipe(32, False, False), window=64),
        BuildSpec(
            "b", ("model-answers",), prompts="/p q.txt", answers=3, temperature=0.8, top_p=0.95, system="Be brief",
            engine="pld",
        ),
        BuildSpec("c", ("chats.jsonl",), columns=("prompt", "input", "answer"), document_limit=1024),
    ):
        assert call(shlex.split(command.build_line(order, load))[1:]) == 130
        assert orders[-1] == (order, load)


async def test_the_default_is_shown_as_chosen_and_is_never_empty(session, monkeypatch):
    monkeypatch.setattr(catalog, "listing", entries)
    async with session(client=FakeClient(ready=RETRIEVING)) as s:
        screen = await opened(s)
        mark = {name: str(screen.listed.get_option(name).prompt)[0] for name in ("sample", "python-stdlib")}
        assert mark == {"sample": "■", "python-stdlib": "□"} and "sample (the default)" in said(s)
        await s.pilot.press("home", "space")
        assert "only sample is searched" in said(s)
        await s.pilot.press("down", "space")
        assert screen.searched == ("sample", "python-stdlib") and "default" not in said(s)
        await s.pilot.press("up", "space")
        assert screen.searched == ("python-stdlib",)
        await s.pilot.press("space", "down", "space", "enter")
        assert s.chat.session.settings.datastores == (), "the default again, so that it follows the model"


async def test_no_datastore_that_does_not_fit_is_named(session, monkeypatch):
    monkeypatch.setattr(catalog, "listing", entries)
    async with session(client=FakeClient(ready=READY)) as s:
        await opened(s)
        assert said(s) == "no datastore fits the model: n builds one"
        await s.pilot.press("enter")
        assert "no datastore is searched" in s.status


async def test_without_a_model_it_is_not_said_that_no_datastore_is_searched(session, monkeypatch):
    monkeypatch.setattr(catalog, "listing", entries)
    async with session(client=FakeClient(ready=Failed("loading was stopped", "", "cancelled"))) as s:
        s.chat.action_data()
        await s.pilot.pause(0.05)
        assert said(s) == "those that fit are known once the model is loaded"
        await s.pilot.press("enter")
        assert "datastores: those that fit are known once the model is loaded" in s.status
        await s.chat._command("/datastore")
        assert "datastores: those that fit are known once the model is loaded" in s.status


async def test_a_datastore_of_a_later_version_is_not_called_damaged(session, home):
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "manifest.json").write_text('{"format": 99}')
    async with session(client=FakeClient(ready=RETRIEVING)) as s:
        screen = await opened(s)
        screen.listed.highlighted = list(screen.rows).index("notes")
        await s.pilot.press("space")
        await s.pilot.pause()
        told = " ".join(str(screen.query_one("#about").content).split())
        assert "has format 99, this program reads up to 1" in told and "update spec-tui" in told
        assert "damaged" not in told and "notes cannot be searched: datastore notes has format 99" in said(s)
        assert "cannot be used" in str(screen.listed.get_option("notes").prompt)


def test_one_file_is_no_plural():
    assert source_words({"kind": "files", "roots": ["README.md"], "files": 1}) == "README.md: 1 file"
    assert source_words({"kind": "model-answers", "prompts": 2388}) == "the model's answers to 2,388 prompts, greedy"
