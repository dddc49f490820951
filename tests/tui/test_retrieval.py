"""Retrieval in the terminal: which datastores are asked, what a lookup brought, and who wrote a token."""

from __future__ import annotations

import pytest

from engines.errors import UsageProblem
from engines.request import Request
from spec_tui.tui import slash
from spec_tui.tui.settings import Settings
from tests.tui.fakes import RETRIEVING, FakeClient


@pytest.fixture(autouse=True)
def nothing_built(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


# -- which datastores -----------------------------------------------------------------------------


def test_datastores_are_chosen_by_command_and_asked():
    outcome = slash.execute("/datastore python-stdlib, sample python-stdlib", Settings(engine="rest"), RETRIEVING)
    assert outcome.settings.datastores == ("python-stdlib", "sample") and "sample" in outcome.message
    assert outcome.settings.request((("user", "x"),), RETRIEVING).datastores == ("python-stdlib", "sample")
    assert "from python-stdlib, sample" in outcome.settings.summary(RETRIEVING)
    cleared = slash.execute("/datastore", outcome.settings, RETRIEVING)
    assert cleared.settings.datastores == () and "ship" in cleared.message


def test_an_engine_that_searches_none_is_said():
    outcome = slash.execute("/datastore sample", Settings(engine="pld"), RETRIEVING)
    assert "pld searches none" in outcome.message and "from" not in outcome.settings.summary(RETRIEVING)


def test_an_unknown_datastore_is_refused_with_those_there_are():
    with pytest.raises(UsageProblem) as caught:
        slash.execute("/datastore sample elsewhere", Settings(), RETRIEVING)
    assert "'elsewhere'" in caught.value.message
    with pytest.raises(UsageProblem):
        slash.execute("/datastore ../../etc", Settings(), RETRIEVING)


def test_names_are_completed_word_by_word():
    assert slash.complete("/datastore sa", Settings(), RETRIEVING) == ["/datastore sample"]
    assert slash.complete("/datastore sample ", Settings(), RETRIEVING) == ["/datastore sample python-stdlib"]
    assert slash.complete("/datastore sample py", Settings(), RETRIEVING) == ["/datastore sample python-stdlib"]


async def test_the_form_takes_them_and_the_answer_names_them(session):
    async with session(client=FakeClient(ready=RETRIEVING), request=Request((), "rest")) as s:
        await s.pilot.press("ctrl+e")
        form = s.app.screen
        form.query_one(".datastores Input").value = "nowhere"
        await s.pilot.pause()
        form.action_apply()
        await s.pilot.pause()
        assert s.app.screen is form and form.query_one(".datastores").has_class("wrong")
        form.query_one(".datastores Input").value = "python-stdlib"
        form.action_apply()
        await s.pilot.pause()
        await s.ask("Merge two lists.")
        assert s.client.requests[0].datastores == ("python-stdlib",)
        assert "from python-stdlib" in s.shown
