"""An engine that finds no datastore to search: one is offered, with an estimate, and built."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engines.datastores.building import text_files as files
from engines.datastores.datastore_events import Built
from engines.datastores.storage import catalog
from engines.report.events import DatastoreInfo
from spec_tui.session.settings import ChatSettings, to_build
from spec_tui.tui.chat_text import stocked
from spec_tui.tui.screens.offered_datastore import OfferedDatastore
from tests.session.inprocess import InProcessClient
from tests.tui.fakes import READY
from tests.tui.test_data import until

LIBRARY = DatastoreInfo("python-stdlib", sparse=True, built=False)


def test_what_can_be_built_is_named_where_only_that_lacks():
    offered = replace(READY, datastores=(LIBRARY,))
    assert to_build(ChatSettings("rest"), offered) == "python-stdlib"
    assert to_build(ChatSettings("pld"), offered) == to_build(ChatSettings("rest"), None) == ""
    assert to_build(ChatSettings("rest", datastores=("python-stdlib",)), offered) == "", "it is built when searched"
    assert to_build(ChatSettings("dresd"), offered) == "", "it has no hidden states"
    own = DatastoreInfo("own", sparse=True, default=True)
    assert to_build(ChatSettings("rest"), replace(offered, datastores=(LIBRARY, own))) == ""


@pytest.mark.parametrize(("engine", "way"), [("rest", "the next answers search it"), ("pld", "d chooses it")])
def test_what_is_built_is_searched_or_to_be_chosen(engine, way):
    ready = replace(READY, datastores=(DatastoreInfo("notes", sparse=True, default=True),))
    session = SimpleNamespace(settings=ChatSettings(engine), ready=ready)
    assert stocked(Built("notes", "sparse", 3, 1, 0, 30, 0.1), session).endswith(f"; {way}")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A Python whose standard library is one short file; no datastore is there."""
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(catalog, "sample_datastores", lambda: None)
    (tmp_path / "two.py").write_text("def add(a, b):\n    return a + b\n" * 4)
    monkeypatch.setattr(files, "standard_library", lambda progress: files.text_files([tmp_path / "two.py"]))


@pytest.mark.parametrize("keys", [("enter",), ("escape",)])
async def test_rest_without_a_datastore_offers_to_build_one(session, tiny, library, keys):
    engine = InProcessClient(lambda *_: tiny)
    tiny.datastore_service.list_datastores()
    async with session(client=engine) as s:
        await until(s, lambda: s.chat.session.phase == "ready")
        s.chat.session.datastore_jobs.refresh()
        await until(s, lambda: s.chat.session.ready.datastores == (LIBRARY,))
        await s.chat._command("/engine rest")
        await until(s, lambda: isinstance(s.app.screen, OfferedDatastore))
        jobs, screen = s.chat.session.datastore_jobs, s.app.screen
        await until(s, lambda: jobs.estimated is not None and "tokens" in str(screen.query_one("#takes").content))
        await s.pilot.press(*keys)
        await until(s, lambda: s.app.screen is s.chat)
        if keys == ("escape",):
            assert jobs.work is None and jobs.ended is None and not catalog.listing()
            return
        await until(s, lambda: isinstance(jobs.ended, Built))
        await until(s, lambda: s.chat.session.settings.searched(s.chat.session.ready) == ("python-stdlib",))
        s.chat.ask("def add(")
        await until(s, lambda: not s.chat.session.busy)
        assert s.chat.session.last.run.started.datastores == ("python-stdlib",)
    engine.close()
