"""``spec-tui model export``: a GGUF file of a model, or a folder, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from engines.hub import gguf_file
from engines.model.loading import load_tokenizer
from tests.sources.test_gguf_export import logits, make_folder


def test_the_command_writes_a_file_without_torch(tmp_path):
    code = ("import sys; from spec_tui.cli import call; code = call(sys.argv[1:]); "
            "assert not {'torch', 'transformers'} & sys.modules.keys(); sys.exit(code)")  # fmt: skip

    def export(*arguments):
        return subprocess.run([sys.executable, "-c", code, "model", "export", *arguments], cwd=tmp_path, text=True,
                              capture_output=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})

    done = export("sample-draft", "--gguf", "--type", "bf16")
    assert (done.returncode, done.stdout) == (0, "") and "wrote sample-draft-BF16.gguf, 3.57 MB" in done.stderr
    assert gguf_file.read(tmp_path / "sample-draft-BF16.gguf").metadata["general.name"] == "sample-draft"
    again = export("sample-draft", "--gguf", "--type", "bf16")
    assert again.returncode == 2 and "exists" in again.stderr and "--force" in again.stderr
    assert export("sample-draft", "--gguf", "--force", "-o", "sample-draft-BF16.gguf").returncode == 0
    stored = gguf_file.read(tmp_path / "sample-draft-BF16.gguf").stored()
    assert set(stored) == {"F32"}


@pytest.mark.parametrize("arguments, code, words", [
    (["sample"], 2, "--gguf writes a GGUF file"), (["sample", "--gguf", "--type", "q3"], 2, "q8_0"),
    (["/no/such", "--gguf"], 3, "there is no model folder"), (["--gguf"], 2, "ID"),
    (["sample", "--gguf", "--revision", "v1"], 2, "has no revisions"),
    (["sample", "--gguf", "-o", "/no/such/m.gguf"], 1, "cannot be written"),
    (["smollm2-draft", "--gguf", "-o", "never.gguf"], 3, "is a GGUF file already"),
    (["sample", "--gguf", "--safetensors"], 2, "--safetensors a folder"),
    (["sample", "--safetensors", "--type", "q8_0"], 2, "safetensors hold no q8_0"),
    (["sample", "--safetensors", "--force"], 2, "--gguf"),
    (["sample-draft", "--safetensors", "-o", "/no/such/folder"], 1, "cannot be written"),
])  # fmt: skip
def test_mistakes_are_sentences(cli, arguments, code, words):
    done = cli("model", "export", *arguments)
    assert (done.code, done.out) == (code, "") and words in " ".join(done.err.split())


def test_a_model_of_the_hub_is_fetched_first(cli, hub, tmp_path, monkeypatch):
    model = make_folder(tmp_path / "model")
    hub.publish("someone/tiny", {file.name: file.read_bytes() for file in model.iterdir()})
    monkeypatch.chdir(tmp_path)
    done = cli("model", "export", "someone/tiny", "--gguf")
    assert done.code == 0 and "wrote tiny-F32.gguf" in done.err, done.err
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == ["tiny-F32.gguf"]


def test_a_gguf_file_becomes_a_folder_of_the_same_model(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make_folder(tmp_path / "made")
    assert cli("model", "export", str(made), "--gguf", "-o", "tiny.gguf").code == 0
    done = cli("model", "export", "tiny.gguf", "--safetensors")
    assert (done.code, done.out) == (0, "") and "wrote tiny-F32" in done.err
    folder = tmp_path / "tiny-F32"
    assert set(tmp_path.iterdir()) == {made, tmp_path / "tiny.gguf", folder}, "and nothing half written"
    assert torch.equal(logits(folder), logits(tmp_path / "tiny.gguf"))
    ours, theirs = (load_tokenizer(str(place)) for place in (folder, tmp_path / "tiny.gguf"))
    assert ours.get_vocab() == theirs.get_vocab() and ours.chat_template == theirs.chat_template
    assert ours("Tom bought 12 apples.").input_ids == theirs("Tom bought 12 apples.").input_ids
    again = cli("model", "export", "tiny.gguf", "--safetensors")
    assert again.code == 2 and "is not empty" in again.err
