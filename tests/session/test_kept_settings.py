"""Settings that are kept for a model."""

from __future__ import annotations

import pytest

from engines.race.lanes import parse_lane
from engines.request import Request
from spec_tui.session import kept_settings
from spec_tui.session.engine_commands import LoadRequest

LOAD = LoadRequest(model="sample")
ASKED = Request((("user", "x"),))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def test_what_is_kept_is_taken_where_no_engine_is_named():
    lane = parse_lane("draft:model=other:num_tokens=4:datastore=notes")
    kept = kept_settings.keep(LOAD, lane, "1.4x")
    assert kept == kept_settings.find(LOAD) and "num_tokens=4" in kept.words and "--undo --model sample" in kept.words
    load, asked, found = kept_settings.begin_with(LOAD, ASKED)
    assert found == kept and load.draft_model == "other"
    assert (asked.engine, asked.options, asked.datastores) == ("draft", {"num_tokens": 4}, ("notes",))
    for load, request in (
        (LOAD, Request(ASKED.conversation, "pld")), (LOAD, Request(ASKED.conversation, options={"c": 1})),
        (LoadRequest(model="sample", server="http://x"), ASKED), (LoadRequest(model="another/model"), ASKED),
    ):
        assert kept_settings.begin_with(load, request) == (load, request, None)
    assert kept_settings.forget(LOAD) and not kept_settings.forget(LOAD)
    assert kept_settings.find(LOAD) is None


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"model": "sample", "engine": "gone"}',
                                    b'{"model": "sample", "engine": "pld", "options": {"num_tokens": 0}}'])
def test_what_is_damaged_counts_as_none(damage):
    kept_settings.keep(LOAD, parse_lane("pld"))
    kept_settings._file(LOAD).write_bytes(damage)
    assert kept_settings.begin_with(LOAD, ASKED) == (LOAD, ASKED, None)
