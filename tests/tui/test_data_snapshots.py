"""How the Data screen looks while something is built, asked or looked up; see ``test_snapshots``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engines.datastores.building import build_spec
from engines.datastores.building.build_spec import BuildSpec
from engines.datastores.datastore_events import (
    BuildEstimate,
    Building,
    Estimated,
    Probed,
    ProbeDraft,
)
from engines.datastores.storage import catalog
from engines.progress import BuildProgress
from engines.report.events import Draft, Origin, Passage, Retrieval
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from tests.tiers import SIZES
from tests.tui.fakes import RETRIEVING, FakeClient, entries
from tests.tui.test_snapshots import still

NOTES = BuildSpec("notes", ("/home/me/notes", "/home/me/README.md"), "both", limit=2_000_000)
PASSAGES = (
    Passage("sample", "merge.py", 12, "def add(", " a, b):\n    return a + b", 41.0),
    Passage("sample", "a/long/way/down/to/the/sorting/of/lists.py", 3041, "def add(", "self, key", 9.0),
)
NODES = ((" a", -1, 0.82), (",", 0, 1.0), (" b", 1, 0.73), ("):\n", 2, 1.0), (" key", 1, 0.27), ("self", -1, 0.18))


def a_draft(source: str) -> Draft:
    pieces, parents, probs = zip(*NODES)
    origins = tuple(Origin(source, 0, p.document, 3, p.datastore, p.line, i) for i, p in enumerate(PASSAGES))
    return Draft(tuple(range(6)), parents, pieces, probs, (0, 0, 0, 0, 1, 1), origins)


NEAR = tuple(replace(passage, weight=score) for passage, score in zip(PASSAGES, (0.964, 0.871)))
FOUND = Probed("sample", "def add(", None, 4, ("\n", "def", " add", "("), (
    ProbeDraft("rest", "REST", a_draft("retrieval"), Retrieval(0.00004, 3, 50, 50, (), PASSAGES)),
    ProbeDraft("dresd", "DReSD", a_draft("retrieval"), Retrieval(0.00017, None, 12, 2, (0.964, 0.871), NEAR)),
))


@pytest.fixture(autouse=True)
def stores(monkeypatch):
    monkeypatch.setattr(catalog, "listing", entries)
    monkeypatch.setattr(build_spec, "unfinished_build", lambda name: BuildSpec("half", ("/home/me/mail",)))


def pictured(snap_compare, size, steps, theme=None) -> bool:
    """Compare the Data screen after these steps, which are given the screen's pilot, client and a way to settle."""
    client = FakeClient(ready=RETRIEVING)
    app = SpecTui(client, LoadRequest(), theme=theme)

    async def run(pilot) -> None:
        chat = await still(app, pilot)

        async def settle() -> None:
            await pilot.pause(0.15)
            chat.pump()
            await pilot.pause(0.15)

        await pilot.press("escape", "d")
        await steps(pilot, client, settle)
        for screen in app.screen_stack:
            for entry in screen.query("Input"):
                entry.cursor_blink = False
        chat.draw_all()
        await settle()
        await pilot.pause(0.3)  # a busy machine lays the dialog out once more

    return snap_compare(app, terminal_size=size, run_before=run)


@pytest.mark.parametrize("size", SIZES)
def test_building(snap_compare, size):
    async def steps(pilot, client, settle):
        pilot.app.screen._build(NOTES, False)
        client.say(Building("notes", BuildProgress("reading", 1204, None, "files", 3000.0)),
                   Building("notes", BuildProgress("tokens", 10_400_000, 10_400_000, "bytes")),
                   Building("notes", BuildProgress("hidden states", 412_000, 1_980_000, "tokens", 9_210.0, 170.0)))
        await settle()

    assert pictured(snap_compare, size, steps)


@pytest.mark.parametrize("size", SIZES)
def test_form_with_an_estimate(snap_compare, size):
    async def steps(pilot, client, settle):
        await pilot.press("n")
        form = pilot.app.screen
        for name, value in {"name": "answers", "from": "model-answers", "prompts": "/home/me/prompts.txt"}.items():
            form.query_one(f"#{name}").put(value)
        await pilot.press("enter")
        client.say(Estimated("answers", BuildEstimate(1_200_000, 7_300_000, 60_000_000, 1900.0, True), 10**11))
        await settle()

    assert pictured(snap_compare, size, steps)


@pytest.mark.parametrize("size", SIZES)
def test_probe(snap_compare, size):
    async def steps(pilot, client, settle):
        await pilot.press("home", "slash")
        pilot.app.screen.query_one("#probe-text").put("def add(")
        await settle()
        client.say(FOUND)
        await settle()

    assert pictured(snap_compare, size, steps)


def test_unfinished_in_light(snap_compare):
    async def steps(pilot, client, settle):
        await pilot.press("end", "minus")
        await settle()

    assert pictured(snap_compare, (100, 30), steps, theme="spec-light")
