"""``spec-tui head``: what it prints, and what it refuses."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file


def test_the_list_names_what_each_head_is_for(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    folder = tmp_path / "heads" / "mine"
    folder.mkdir(parents=True)
    save_file({"fc.weight": torch.zeros(2)}, folder / "model.safetensors")
    verifier = {"verifier": {"name_or_path": "a/target"}}
    (folder / "config.json").write_text(json.dumps({"spec_tui": {"target_fingerprint": "12"},
                                                    "speculators_config": verifier}))
    (tmp_path / "heads" / "damaged").mkdir()
    rows = json.loads(cli("head", "list", "--format", "json").out)
    assert rows[0] == {"name": "mine", "family": "EAGLE", "kind": "EAGLE head", "folder": str(folder), "ships": False,
                       "target_fingerprint": "12", "target": "a/target", "width": None, "vocabulary": None,
                       "stored": {"F32": 2}, "expected": 0.0}  # fmt: skip
    assert "EAGLE head for a/target; trained here" in cli("head", "list").out


@pytest.mark.parametrize("words, reason", [
    (["train", "../x", "--prompts", "p"], "not a valid name for a head"),
    (["train", "x"], "nothing to train on"),
    (["train", "x", "--prompts", "p", "--layers", "a"], "--layers takes numbers"),
])
def test_what_cannot_be_trained_is_refused_before_a_model_is_loaded(cli, words, reason):
    done = cli("head", *words)
    assert done.code == 2 and reason in done.err
