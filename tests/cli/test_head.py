"""``spec-tui head``: what it prints, and what it refuses."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import lock, sample_model
from engines.heads.checkpoint import write
from engines.heads.find_heads import heads_for
from spec_tui.cli import head
from tests.heads import make_file

PROMPTS = "".join(f"prompt {number}\n" for number in range(16))  # just enough to train on


def test_the_list_names_what_each_head_is_for(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    folder = tmp_path / "heads" / "mine"
    folder.mkdir(parents=True)
    save_file({"fc.weight": torch.zeros(2)}, folder / "model.safetensors")
    verifier = {"verifier": {"name_or_path": "a/target"}}
    (folder / "config.json").write_text(json.dumps({"spec_tui": {"target_fingerprint": "12"},
                                                    "speculators_config": verifier}))
    (tmp_path / "heads" / ".work").mkdir()
    rows = json.loads(cli("head", "list", "--format", "json").out)
    assert rows[0] == {"name": "mine", "family": "EAGLE", "kind": "EAGLE head", "folder": str(folder), "ships": False,
                       "target_fingerprint": "12", "target": "a/target", "width": None, "vocabulary": None,
                       "stored": {"F32": 2}, "expected": 0.0, "fault": ""}  # fmt: skip
    assert "EAGLE head for a/target; trained here" in cli("head", "list").out
    assert ".work" not in [row["name"] for row in rows]


@pytest.mark.parametrize("lost, fault", [
    (("config.json",), "it has no config.json"), (("model.safetensors",), "it has no model.safetensors"),
    (("model.safetensors", b"cut"), "model.safetensors is damaged, or cut off"),
    (("config.json", b"{"), "config.json is damaged: it is not JSON")])
def test_a_damaged_head_is_listed_and_named_with_its_fault(cli, monkeypatch, tmp_path, tiny, lost, fault):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    write(replace(make_file(tiny.target), folder=tmp_path / "heads" / "mine"), tiny.target.name)
    file = tmp_path / "heads" / "mine" / lost[0]
    file.write_bytes(lost[1]) if lost[1:] else file.unlink()
    row = json.loads(cli("head", "list", "--format", "json").out)[0]
    assert (row["name"], row["family"]) == ("mine", None) and fault in row["fault"]
    assert f"cannot be used: {fault}" in " ".join(cli("head", "list").out.split())
    assert heads_for(None, tiny.target) == ({}, ()), "it is not taken by itself"
    with pytest.raises(ModelUnavailable, match=r"head mine (has no|cannot be read)"):
        heads_for("mine", tiny.target)


@pytest.mark.parametrize("expected", ["NaN", "Infinity", "-1", "1" + "0" * 400, '"many"'])
def test_a_number_that_no_training_expected_spoils_no_list(cli, monkeypatch, tmp_path, expected):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    folder = tmp_path / "heads" / "mine"
    folder.mkdir(parents=True)
    save_file({"fc.weight": torch.zeros(2)}, folder / "model.safetensors")
    (folder / "config.json").write_text(f'{{"spec_tui": {{"card": {{"expected_tokens_a_round": {expected}}}}}}}')
    assert json.loads(cli("head", "list", "--format", "json").out)[0]["expected"] == 0


def test_the_sample_has_one_name_in_the_list_and_the_description(cli, monkeypatch, tmp_path, tiny):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(tiny.target, "name", str(sample_model("target")))
    monkeypatch.setattr(head, "_with_head", lambda *_: (tiny, tiny.heads["EAGLE head"]))
    write(replace(make_file(tiny.target), folder=tmp_path / "heads" / "mine"), tiny.target.name)
    assert "EAGLE-3 head for sample; trained here" in cli("head", "list").out
    described = [line.rstrip() for line in cli("head", "info", "mine").out.splitlines()]
    assert sum(line.endswith((" weights of sample", " forward pass of sample")) for line in described) == 2


@pytest.mark.parametrize("words, reason", [
    (["h1"], "h1 exists and is not empty\n  give the head another name, or remove that folder"),
    (["h2", "--out", "full"], "full exists and is not empty\n  name another folder with --out, or remove that one"),
    (["h2", "--out", "full/file"], "full/file exists and is not empty"),
    (["h2", "--out", "full/file/below"], "full/file is not a folder"),
    (["h2", "--out", "x" * 300], "File name too long"),
    (["h2", "--work", "full/file/below"], "full/file/below cannot be written"),
])
def test_no_training_begins_whose_head_could_not_be_written(cli, monkeypatch, tmp_path, words, reason):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for folder in ("heads/h1", "full"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "file").touch()
    (tmp_path / "p").write_text(PROMPTS)
    done = cli("head", "train", *words, "--prompts", "p")
    assert done.code == 2 and reason in done.err
    assert not (tmp_path / "full" / "file").stat().st_size


def test_too_few_prompts_are_refused_before_a_model_is_loaded_and_leave_nothing(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(head, "load_once", lambda *_: pytest.fail("a model is loaded"))
    (tmp_path / "p").write_text(PROMPTS.partition("\n")[2])
    done = cli("head", "train", "h1", "--prompts", str(tmp_path / "p"))
    assert done.code == 2 and "15 answers are too few to train on" in done.err and "at least 16" in done.err
    assert not list((tmp_path / "data").rglob(".h1"))


def test_two_processes_do_not_train_one_head(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    (tmp_path / "p").write_text(PROMPTS)
    with lock(tmp_path / "heads" / ".h1", "training", ValueError(), lambda error: error):
        done = cli("head", "train", "h1", "--prompts", str(tmp_path / "p"))
    assert done.code == 2 and "another process is training in" in done.err


def test_a_training_that_cannot_begin_leaves_no_folder(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "p").write_text(PROMPTS)
    done = cli("head", "train", "h1", "--prompts", str(tmp_path / "p"), "--model", str(tmp_path / "none"))
    assert done.code and not (tmp_path / "data" / "heads" / ".h1").exists()


class Asked(list):
    """What a head is trained on, all of it given, and no prompts."""

    runtime, place, made, prompts = SimpleNamespace(target=None), Path("work"), 0, ()


@pytest.mark.parametrize("writer, error", [
    ("heads.hidden_state_cache.write_json", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
    ("model.tensor_files.save_file", SafetensorError("I/O error: No space left on device (os error 28)")),
])
def test_a_full_disk_ends_a_training_with_a_sentence(cli, monkeypatch, tmp_path, tiny, writer, error):
    def full(*_):
        raise error

    monkeypatch.setattr(head, "load_once", lambda *_: tiny)
    monkeypatch.setattr(f"engines.{writer}", full)
    (tmp_path / "p").write_text(PROMPTS)
    done = cli("head", "train", "h1", "--prompts", str(tmp_path / "p"), "--family", "eagle", "--max-new-tokens", "12",
               "--work", str(tmp_path / "w"), "--out", str(tmp_path / "h"))
    assert done.code == 1 and done.err.endswith(
        f"spec-tui: {tmp_path / 'w'} cannot be written: No space left on device\n"
        "  make room, or choose other folders with --work and --out\n")


def test_no_prompt_is_answered_for_an_unfinished_training_on_others(monkeypatch, tmp_path):
    asked = Asked(range(16))
    asked.place, asked.prompts, asked.made = tmp_path, ["old", "new"], 1
    monkeypatch.setattr(head, "_takes", lambda *_: pytest.fail("a prompt is answered"))
    (tmp_path / "unfinished_training").mkdir()
    (tmp_path / "unfinished_training" / "taps.json").write_text("{}")
    with pytest.raises(UsageProblem, match="unfinished_training holds an unfinished training on other answers") as said:
        head._trained(None, asked, None, False)
    assert "remove that folder: answers that were made are kept" in said.value.hint


def test_an_estimate_answers_prompts_that_are_not_answered_yet(tiny, tmp_path):
    """Else a resumed training could not tell how long the others take."""
    asked = head._Answers(tiny, PROMPTS.splitlines(), [], tmp_path, 12)
    display = SimpleNamespace(answering=lambda *_: None)
    for made in (6, 12, 16, 16):
        asked.texts(display, 6)
        assert asked.made == made
    assert len(asked.texts(display)) <= len(asked) == 16


@pytest.mark.parametrize("free, noted", [(1 << 40, False), (0, True)])
def test_an_estimate_counts_what_the_training_writes_and_says_where_the_disk_is_too_small(
    cli, monkeypatch, tmp_path, tiny, free, noted
):
    monkeypatch.setattr(head, "load_once", lambda *_: tiny)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    (tmp_path / "p").write_text(PROMPTS)
    done = cli("head", "train", "h1", "--prompts", str(tmp_path / "p"), "--family", "eagle", "--max-new-tokens", "12",
               "--work", str(tmp_path / "w"), "--out", str(tmp_path / "h"), "--estimate")
    size, unit = re.search(r"the training takes up to ([\d.]+) (\w+) in", done.err).groups()
    parameters = int(re.search(r"the head has ([\d,]+) parameters", done.err)[1].replace(",", ""))
    assert float(size) * {"kB": 1e3, "MB": 1e6}[unit] > 27 * parameters
    assert done.code == 0 and ("note: the disk has 0 bytes left; --work names another folder" in done.err) == noted


@pytest.mark.parametrize("words, reason", [
    (["train", "../x", "--prompts", "p"], "not a valid name for a head"),
    (["train", "x"], "nothing to train on"),
    *((["train", name, "--prompts", "p"], f"no head can have the name {name}: --head {name.lower()} has a meaning")
      for name in ("none", "auto", "eagle", "EAGLE-3", "medusa")),
    (["train", "x", "--prompts", "p", "--layers", "a"], "--layers takes numbers"),
    (["train", "x", "--prompts", "p", "--seed", "-1"], "--seed is at least 0, not -1"),
])
def test_what_cannot_be_trained_is_refused_before_a_model_is_loaded(cli, words, reason):
    done = cli("head", *words)
    assert done.code == 2 and reason in done.err
