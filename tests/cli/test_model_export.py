"""``spec-tui model export``: a folder of safetensors of any model that is read, and nothing else."""

from __future__ import annotations

import errno

import pytest
import torch

from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model
from tests.sources.gguf_files import Tiny


@torch.no_grad()
def logits(model):
    found = read_model(locate(str(model)), torch.float32, torch.device("cpu")).eval()
    return found(torch.tensor([[5, 80, 81, 90, 7]])).logits


@pytest.mark.parametrize("arguments, code, words", [
    (["sample", "--type", "q8_0"], 2, "q8_0"), ([], 2, "ID"), (["/no/such"], 3, "there is no model folder"),
    (["sample", "--revision", "v1"], 2, "has no revisions"),
    (["sample-draft", "-o", "/no/such/folder"], 1, "cannot be written"),
])  # fmt: skip
def test_mistakes_are_sentences(cli, arguments, code, words):
    done = cli("model", "export", *arguments)
    assert (done.code, done.out) == (code, "") and words in " ".join(done.err.split())


def test_a_full_disk_is_named_and_room_advised(cli, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    done = cli("model", "export", "sample-draft", "-o", str(tmp_path / "made"))
    assert done.code == 1 and "made cannot be written: No space left on device" in " ".join(done.err.split())
    assert "make room, or name another folder" in done.err and not (tmp_path / "made").exists()


def test_a_gguf_file_becomes_a_folder_of_the_same_model(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Tiny("llama").write(tmp_path / "tiny.gguf")
    done = cli("model", "export", "tiny.gguf")
    assert (done.code, done.out) == (0, "") and "wrote tiny-F32" in done.err
    folder = tmp_path / "tiny-F32"
    assert set(tmp_path.iterdir()) == {file, folder}, "and nothing half written"
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1, "who reads one file reads all"
    assert torch.equal(logits(folder), logits(file))
    ours, theirs = (load_tokenizer(str(place)) for place in (folder, file))
    assert ours.get_vocab() == theirs.get_vocab() and ours.chat_template == theirs.chat_template
    assert ours("Tom bought 12 apples.").input_ids == theirs("Tom bought 12 apples.").input_ids
    again = cli("model", "export", "tiny.gguf")
    assert again.code == 2 and "is not empty" in again.err


def test_a_model_of_the_hub_is_fetched_first(cli, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("model", "export", "sample-draft", "--type", "bf16", "-o", "made").code == 0
    hub.publish("someone/tiny", {file.name: file.read_bytes() for file in (tmp_path / "made").iterdir()})
    done = cli("model", "export", "someone/tiny", "--type", "bf16")
    assert done.code == 0 and "wrote tiny-BF16" in done.err, done.err
    assert torch.equal(logits(tmp_path / "tiny-BF16"), logits(tmp_path / "made"))
