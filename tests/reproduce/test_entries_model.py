"""Entries name a known model that they run on where it is here."""

from __future__ import annotations

from dataclasses import replace

from engines.hub.known_models import KNOWN
from engines.reproduce.entry import shipped
from spec_tui.cli.reproduce import _model


def test_a_model_that_an_entry_names_is_known_and_taken_only_where_it_is_here(monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    named = {name: entry for name, entry in shipped().items() if entry.model}
    assert "guide-draft-model" in named and {entry.model for entry in named.values()} <= set(KNOWN)
    entry = named["guide-draft-model"]
    assert _model(entry) == ""
    tiny = replace(KNOWN["qwen-coder"], size=1, draft=None)
    monkeypatch.setitem(KNOWN, "qwen-coder", tiny)
    tiny.path.parent.mkdir(parents=True)
    tiny.path.write_bytes(b"x")
    assert _model(entry) == "qwen-coder" and _model(shipped()["spec-bench"]) == ""
