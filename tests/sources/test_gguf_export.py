"""Our own pair written as GGUF files: read back here it is the same model, and llama.cpp reads it so, too."""

from __future__ import annotations

import pytest
import torch

from engines.errors import ModelUnavailable
from engines.folders import sample_model
from engines.hub import gguf_file, gguf_folder
from engines.hub.known_models import known_name, resolve
from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model
from tests.sources.gguf_files import exported
from tests.sources.test_gguf import HARD, PROMPT


def read(model):
    return read_model(locate(str(model)), torch.float32, torch.device("cpu")).eval()


@torch.no_grad()
def logits(model, prompt=PROMPT):
    return read(model)(torch.tensor([prompt])).logits[0]


def differs_from_llama_cpp(file) -> float:
    """The largest difference of a log-probability from llama.cpp's, over the 100 likeliest tokens."""
    from tests.sources.llama_cpp import LlamaCpp

    ours = logits(file)[-1].log_softmax(-1)
    theirs = LlamaCpp(file).logprobs(PROMPT, 100, ord("a"))
    assert len(theirs) == 100 and max(theirs.values()) - min(theirs.values()) > 1
    return max(abs(ours[token].item() - value) for token, value in theirs.items())


@pytest.mark.parametrize("number, role", [(0, "target"), (1, "draft")])
def test_the_shipped_pair_is_the_same_model_as_a_file(sample_gguf, number, role):
    folder, file = sample_model(role), sample_gguf[number]
    ours, theirs = read(folder).state_dict(), read(file).state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    prompt = load_tokenizer(str(folder))("def add(a, b):\n    return a + b\n\n\ndef sub(a, b):").input_ids
    assert torch.equal(logits(folder, prompt), logits(file, prompt))
    assert differs_from_llama_cpp(file) < 0.01


def test_the_shipped_pair_s_texts_have_the_same_tokens(sample_gguf):
    from tests.sources.llama_cpp import LlamaCpp

    folder, file = sample_model("target"), sample_gguf[0]
    ours, theirs, oracle = load_tokenizer(str(folder)), load_tokenizer(str(file)), LlamaCpp(file)
    texts = (*HARD, "<|user|>\nhi<|end|>\n<|assistant|>\n", "x = 10 ** 6  # a million\n\n\n\tdone")
    expected = {text: ours(text).input_ids for text in texts}
    assert {text: theirs(text).input_ids for text in texts} == expected
    assert {text: oracle.tokens(text) for text in texts} == expected
    asked = [{"role": "user", "content": "hi"}]
    assert ours.apply_chat_template(asked, add_generation_prompt=True) == theirs.apply_chat_template(
        asked, add_generation_prompt=True)
    assert ours.get_vocab() == theirs.get_vocab() and ours.eos_token == theirs.eos_token
    assert 5 in gguf_folder.ends_of_answer(gguf_file.read(file))


@pytest.mark.parametrize("kind, most", [("BF16", 0.0), ("F16", 0.01), ("Q8_0", 0.4)])
def test_smaller_types_keep_as_much_as_they_can(kind, most, tmp_path):
    file = exported(sample_model("draft"), tmp_path / "m.gguf", kind)
    difference = (logits(sample_model("draft")).log_softmax(-1) - logits(file).log_softmax(-1)).abs().max().item()
    assert difference <= most and (difference > 0) == (kind != "BF16"), "the folder stores bfloat16"
    stored = gguf_file.read(file).stored()
    assert max(stored, key=stored.get) == kind and "F32" in stored


def test_rows_that_are_no_whole_blocks_are_stored_otherwise(tmp_path):
    file = exported(sample_model("target"), tmp_path / "m.gguf", "Q8_0")
    kinds = {tensor.name: tensor.kind for tensor in gguf_file.read(file).tensors}
    assert kinds["blk.0.ffn_down.weight"] == "F16" and kinds["blk.0.ffn_up.weight"] == "Q8_0"


def test_a_folder_takes_over_no_known_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sample", "sample-draft", "qwen-coder"):
        (tmp_path / name).mkdir()
    assert resolve("sample") == str(sample_model("target")) and resolve("sample-draft") == str(sample_model("draft"))
    assert resolve("./sample") == "./sample"
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(ModelUnavailable, match="is not on this machine") as missing:
        resolve("qwen-coder")
    assert "./qwen-coder is what lies in this folder" in missing.value.hint


def test_a_known_file_is_known_anywhere_and_no_other_that_ends_like_it():
    file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"
    assert {known_name(f"{place}{file}") for place in ("", "/x/", "C:\\x\\", "owner/name:")} == {"qwen-coder"}
    assert known_name(f"/x/my-tuned-{file}") == ""


def test_the_pair_s_draft_model_goes_by_a_name():
    assert resolve("sample-draft") == str(sample_model("draft")) and known_name("sample-draft") == "sample-draft"
    names = {known_name(str(sample_model(role))) for role in ("draft", "target")}
    assert names == {"sample-draft", "sample"}
