"""Settings that are kept for a model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from engines.hub.known_models import chosen
from engines.race.lanes import Lane, parse_lane
from engines.request import Request
from spec_tui.session import kept_settings
from spec_tui.session.engine_commands import LoadRequest

LOAD = LoadRequest(model="sample")
ASKED = Request((("user", "x"),))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))


def damage_all(folder: Path, content: bytes) -> None:
    """Write this into every file that is kept."""
    kept = [path for path in folder.rglob("*") if path.is_file()]
    assert kept
    for file in kept:
        file.write_bytes(content)


def test_what_is_kept_is_taken_where_no_engine_is_named():
    lane = parse_lane("draft:model=other:num_tokens=4:datastore=python-stdlib")
    kept = kept_settings.keep(LOAD, lane, "1.4x")
    assert kept == kept_settings.find(LOAD) and "num_tokens=4" in kept.words and "--undo --model sample" in kept.words
    load, asked, found = kept_settings.begin_with(LOAD, ASKED)
    assert found == kept and load.draft_model == "other"
    assert (asked.engine, asked.options, asked.datastores) == ("draft", {"num_tokens": 4}, ("python-stdlib",))
    for load, request in (
        (LOAD, Request(ASKED.conversation, "pld")), (LOAD, Request(ASKED.conversation, options={"c": 1})),
        (LoadRequest(model="sample", server="http://x"), ASKED), (LoadRequest(model="another/model"), ASKED),
    ):
        assert kept_settings.begin_with(load, request) == (load, request, None)
    assert kept_settings.forget(LOAD) and not kept_settings.forget(LOAD)
    assert kept_settings.find(LOAD) is None


def test_the_head_that_was_named_is_kept_until_auto(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    named = replace(LOAD, head="mine")
    assert kept_settings.with_head(LOAD) == LOAD and kept_settings.with_head(named) == named
    kept_settings.keep_head(named)
    assert kept_settings.with_head(LOAD).head == str(tmp_path / "mine"), "from any folder"
    none, other = replace(LOAD, head="none"), LoadRequest(model="another/model")
    kept_settings.keep_head(none)  # for once
    assert (kept_settings.with_head(none), kept_settings.with_head(other)) == (none, other)
    assert kept_settings.find(LOAD) is None, "the engine is another matter"
    (tmp_path / "mine").rmdir()
    assert kept_settings.with_head(LOAD) == LOAD, "it is gone"
    assert kept_settings.head_left_out(LOAD).endswith("mine, which is kept for this model, is left out: it is not here")
    assert not kept_settings.head_left_out(named) and not kept_settings.head_left_out(other)
    kept_settings.keep_head(replace(LOAD, head="owner/name"))
    assert kept_settings.with_head(LOAD).head == "owner/name"
    kept_settings.keep_head(replace(LOAD, head="eagle"))
    assert kept_settings.with_head(LOAD).head == "eagle" and not kept_settings.head_left_out(LOAD), "a family"
    assert kept_settings.with_head(replace(LOAD, head="auto")) == LOAD == kept_settings.with_head(LOAD)
    assert not kept_settings.head_left_out(LOAD)


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"model": "sample"}', b'{"model": "sample", "head": 3}',
                                    b'{"model": "sample", "head": "~nobody-here/x"}', b'{"model": "x", "head": "a/b"}'])
def test_a_damaged_note_of_a_head_counts_as_none(tmp_path, damage):
    kept_settings.keep_head(replace(LOAD, head="owner/name"))
    damage_all(tmp_path, damage)
    assert kept_settings.with_head(LOAD) == LOAD


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"model": "sample"}', b'{"model": "another", "engine": "pld"}'])
def test_what_is_damaged_counts_as_none(tmp_path, damage):
    kept_settings.keep(LOAD, parse_lane("pld"))
    damage_all(tmp_path, damage)
    assert kept_settings.begin_with(LOAD, ASKED) == (LOAD, ASKED, None)


@pytest.mark.parametrize("lane, why", [
    (Lane("rest", datastores=("gone",)), "gone"), (Lane("draft", draft_model="/gone/away"), "there is no /gone/away"),
    (Lane("draft", draft_model="~/gone"), "there is no "), (Lane("server"), "decodes in another program"),
    (Lane("gone"), "there is no engine 'gone'"), (Lane("pld", {"num_tokens": 0}), "num_tokens"),
])
def test_what_names_something_that_is_gone_or_decodes_elsewhere_is_left_out_and_says_so(lane, why):
    kept_settings.keep(LOAD, lane)
    load, asked, kept = kept_settings.begin_with(LOAD, ASKED)
    assert (load, asked) == (LOAD, ASKED) and why in kept.gone
    assert f"is left out: {kept.gone}; spec-tui advise --undo --model sample forgets it" in kept.words


def test_a_kept_draft_model_is_found_from_any_folder_until_it_is_gone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    kept_settings.keep(LOAD, Lane("draft", draft_model="mine"))
    assert kept_settings.begin_with(LOAD, ASKED)[0].draft_model == str(tmp_path / "mine")
    (tmp_path / "mine").rmdir()
    assert kept_settings.find(LOAD).gone
    kept_settings.keep(LOAD, Lane("draft", draft_model="owner/name"))
    assert kept_settings.find(LOAD).draft_model == "owner/name", "the hub may have it"


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"view": "gone"}', b'{"view": ["source"]}'])
def test_a_damaged_note_of_the_view_counts_as_none(tmp_path, damage):
    kept_settings.keep_view("source")
    assert kept_settings.kept_view() == "source"
    damage_all(tmp_path, damage)
    assert kept_settings.kept_view() == "outcome"


def test_a_pipe_in_the_place_of_a_note_is_not_waited_for(tmp_path):
    (tmp_path / "settings").mkdir()
    for name in ("view.json", "lessons.json", "model.json"):
        os.mkfifo(tmp_path / "settings" / name)
    assert kept_settings.kept_view() == "outcome" and not kept_settings.finished_lessons() and not chosen()
