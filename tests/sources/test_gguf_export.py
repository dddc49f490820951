"""A model folder written as a GGUF file: read back here it is the same model, and llama.cpp reads it so, too."""

from __future__ import annotations

import json
from collections import namedtuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.errors import ModelUnavailable, RunFailed, UsageProblem
from engines.folders import sample_model
from engines.hub import gguf_export, gguf_file, gguf_folder
from engines.hub.known_models import known_name, resolve
from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model
from tests.sources.gguf_files import SPECIAL, exported, vocabulary
from tests.sources.test_gguf import HARD, llama3_factors
from tests.sources.test_hostile import VALUES

PROMPT = [5, 80, 81, 90, 7, 100, 101, 33, 44, 60]
SCALED = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # fmt: skip
FAMILIES = {
    "llama": {},
    "llama with biases": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "llama 3.1": {"rope_parameters": SCALED, "head_dim": 16},
    "llama, linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
}


def make_folder(folder, family="llama", tokenizer=None, more=0, **changes):
    """A random model of a family, saved; its vectors are no ones and zeros. ``more``: rows of the embedding without a
    token."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(1)
    tokenizer = tokenizer or tokenizer_of("smollm")
    config = AutoConfig.for_model(family.split(",")[0].split()[0], **{
        "vocab_size": len(tokenizer) + more, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.3,
        "bos_token_id": None, "eos_token_id": 274, "pad_token_id": 274, **FAMILIES.get(family, {}), **changes,
    })  # fmt: skip
    model = AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.data += torch.randn_like(weight) / 10
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def change(folder, file="config.json", **changes):
    """Change a file of a folder; None takes a key out."""
    found = json.loads((folder / file).read_text(encoding="utf-8")) | changes
    (folder / file).write_text(json.dumps({k: v for k, v in found.items() if v is not None}), encoding="utf-8")
    return folder


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


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_that_is_written_computes_the_same(family, tmp_path):
    folder = make_folder(tmp_path / "model", family)
    file = exported(str(folder), tmp_path / "model.gguf")
    assert torch.equal(logits(folder), logits(file))
    assert differs_from_llama_cpp(file) < 0.01


def test_the_factors_of_llama_3_are_those_that_are_read(tmp_path):
    file = gguf_file.read(exported(str(make_folder(tmp_path / "m", "llama 3.1", head_dim=64)), tmp_path / "m.gguf"))
    stored = next(tensor for tensor in file.tensors if tensor.name == "rope_freqs.weight")
    assert np.array_equal(np.fromfile(file.path, "<f4", stored.count, offset=stored.begin), llama3_factors())


def tokenizer_of(cut: str):
    """A byte-level tokenizer that cuts text in a way that llama.cpp has a name for, with a word that no merges lead to;
    some begin each text with a token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    tokens, merges = vocabulary()
    tokens = [*tokens[: -len(SPECIAL)], "zqzq"]
    whole = cut in ("llama-bpe", "tekken")
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)},
                                   merges=[tuple(merge.split()) for merge in merges], ignore_merges=whole))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=cut in ("gpt-2", "smollm"))
    first = {"gpt-2": [], "smollm": [pre_tokenizers.Digits(individual_digits=True)]}.get(cut)
    if first is None:
        first = [pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[cut]), behavior="isolated")]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*first, level])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([*SPECIAL])
    if whole:
        first = ("<|user|>", backend.token_to_id("<|user|>"))
        backend.post_processor = processors.TemplateProcessing(single="<|user|> $A", special_tokens=[first])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", bos_token="<|user|>")


@pytest.mark.parametrize("cut", ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken"])
def test_text_is_cut_as_the_folder_s_tokenizer_cuts_it(cut, tmp_path):
    from tests.sources.llama_cpp import LlamaCpp

    ours = tokenizer_of(cut)
    folder = make_folder(tmp_path / "model", tokenizer=ours, more=4)
    file = exported(str(folder), tmp_path / "model.gguf")
    assert gguf_file.read(file).metadata["tokenizer.ggml.pre"] == cut
    texts = (*HARD, "zqzq the zqzqz", "<|end|>12345zqzq")
    theirs, oracle = load_tokenizer(str(file)), LlamaCpp(file)
    expected = {text: ours(text).input_ids for text in texts}
    assert {text: theirs(text).input_ids for text in texts} == expected
    assert {text: oracle.tokens(text) for text in texts} == expected
    assert len(theirs) == len(ours) + 4, "rows of the embedding that no text has"


@pytest.mark.parametrize("kind, most", [("BF16", 0.0), ("F16", 0.01), ("Q8_0", 0.4)])
def test_smaller_types_keep_as_much_as_they_can(kind, most, tmp_path):
    file = exported("sample-draft", tmp_path / "m.gguf", kind)
    difference = (logits(sample_model("draft")).log_softmax(-1) - logits(file).log_softmax(-1)).abs().max().item()
    assert difference <= most and (difference > 0) == (kind != "BF16"), "the folder stores bfloat16"
    stored = gguf_file.read(file).stored()
    assert max(stored, key=stored.get) == kind and "F32" in stored


def test_rows_that_are_no_whole_blocks_are_stored_otherwise_and_said(tmp_path):
    remarks = gguf_export.export(locate("sample"), tmp_path / "m.gguf", lambda _: "Q8_0", lambda _: None, name="m")
    kinds = {tensor.name: tensor.kind for tensor in gguf_file.read(tmp_path / "m.gguf").tensors}
    assert kinds["blk.0.ffn_down.weight"] == "F16" and kinds["blk.0.ffn_up.weight"] == "Q8_0"
    assert remarks == ("12 matrices are stored as F16: their rows are no whole blocks of Q8_0",)


def refused(folder, tmp_path, kind="F32") -> str:
    with pytest.raises(ModelUnavailable) as caught:
        exported(str(folder), tmp_path / "m.gguf", kind)
    assert not list(tmp_path.glob("*m.gguf*"))
    return caught.value.message


CONFIGS = {
    "its architecture is gemma2; these are written: llama, mistral, qwen2, qwen3": {"model_type": "gemma2"},
    "window": {"model_type": "mistral", "sliding_window": 16},
    "'dynamic'": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    "'llama3'": {"rope_parameters": SCALED | {"high_freq_factor": 8.0}},
    "no numbers": {"rope_parameters": {"rope_theta": "x"}},
    "quantised already": {"quantization_config": {"quant_method": "awq"}},
    "'gelu'": {"hidden_act": "gelu"},
    "does not state rms_norm_eps": {"rms_norm_eps": None},
    "does not state num_attention_heads": {"num_attention_heads": -1},
    "its model.embed_tokens.weight is of shape (277, 32), not (278, 32)": {"vocab_size": 278},
    "has no model.layers.2.": {"num_hidden_layers": 3},
    "which no such model has": {"num_hidden_layers": 1},
    "as many num_hidden_layers": {"num_hidden_layers": 10**9},
}
TOKENIZERS = {
    "no merges": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
    "no byte-level BPE": {"model": {"type": "Unigram", "vocab": []}},
    "a way that llama.cpp has no name for": {"pre_tokenizer": {"type": "Whitespace"}},
    "changes a text": {"normalizer": {"type": "Lowercase"}},
    "not its first and last one": {"post_processor": {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]}},
    "not spelled in bytes": {"added_tokens": [{"id": 9, "content": "a b", "special": True}]},
    "takes the spaces": {"added_tokens": [{"id": 9, "content": "<x>", "special": True, "lstrip": True}]},
    "more tokens than the model": {"added_tokens": [{"id": 277, "content": "<x>", "special": True}]},
    "a token twice": {"added_tokens": [{"id": 9, "content": "!", "special": True}]},
    "an added token that is none": {"added_tokens": [7]},
    "damaged": {"pre_tokenizer": 7, "post_processor": {"type": "TemplateProcessing", "single": [7]}},
}


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("untied") / "model", tie_word_embeddings=False)


@pytest.fixture
def folder(untied, tmp_path):
    """A folder that a test may damage."""
    (tmp_path / "model").mkdir()
    for file in untied.iterdir():
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "model"


@pytest.mark.parametrize("words", CONFIGS)
def test_what_llama_cpp_would_compute_otherwise_is_refused(words, folder, tmp_path):
    assert words in refused(change(folder, **CONFIGS[words]), tmp_path)


@pytest.mark.parametrize("words", TOKENIZERS)
def test_what_llama_cpp_would_cut_otherwise_is_refused(words, folder, tmp_path):
    assert words in refused(change(folder, "tokenizer.json", **TOKENIZERS[words]), tmp_path)


PLACES = [("config.json", key) for key in (
    "model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "rope_parameters", "rope_scaling", "layer_types", "sliding_window", "hidden_act", "eos_token_id",
    "rms_norm_eps", "tie_word_embeddings", "attention_bias", "quantization_config",
)] + [("tokenizer.json", key) for key in ("model", "added_tokens", "pre_tokenizer", "post_processor", "normalizer")] + [
    ("tokenizer_config.json", key) for key in ("chat_template", "eos_token", "add_bos_token", "added_tokens_decoder")
] + [("generation_config.json", "eos_token_id")]  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=st.sampled_from(VALUES))
def test_any_nonsense_is_written_as_something_that_is_read_or_refused(untied, folder, tmp_path, place, value):
    file, key = place
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    before = (folder / file).read_bytes()
    (folder / file).write_text(json.dumps(json.loads(before) | {key: value}))
    try:
        gguf_file.read(exported(str(folder), tmp_path / "m.gguf"))
    except ModelUnavailable as error:
        assert error.message and error.hint and not (tmp_path / "m.gguf").exists()
    finally:
        (folder / file).write_bytes(before)
        (tmp_path / "m.gguf").unlink(missing_ok=True)


def test_other_damages_and_forms_are_sentences(folder, tmp_path, sample_gguf):
    assert "GGUF file already" in refused(sample_gguf[0], tmp_path)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-100])
    assert "model.safetensors is cut off" in refused(folder, tmp_path)
    (folder / "tokenizer.json").write_text("[")
    (folder / "model.safetensors").write_bytes(weights)
    assert "tokenizer.json is damaged" in refused(folder, tmp_path)


def test_what_a_type_cannot_hold_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = make_folder(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"][3, 5] = 1e5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    assert "blk.1.ffn_up.weight has numbers that F16 does not" in refused(folder, tmp_path, "F16")
    assert torch.equal(logits(folder), logits(exported(str(folder), tmp_path / "m.gguf")))


def test_texts_from_a_folder_are_no_paths_and_other_ends_are_kept(folder, tmp_path):
    change(folder, _name_or_path="../../../outside", eos_token_id=[274, 3])
    change(folder, "generation_config.json", eos_token_id=[3, 7, 274])
    file = gguf_file.read(exported(str(folder), tmp_path / "m.gguf"))
    assert gguf_folder.ends_of_answer(file) == [3, 7, 274, 276] and "outside" not in repr(file.metadata)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf", "model"]
    change(folder, "generation_config.json", eos_token_id=[274, 3, 7, 8])
    assert "4 of its tokens end an answer" in refused(folder, tmp_path / "..")


def test_a_stop_and_a_full_disk_leave_nothing(folder, tmp_path, monkeypatch):
    told = []

    def stop(step):
        told.append(step.done)
        if len(told) > 3:
            raise KeyboardInterrupt

    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        gguf_export.export(locate(str(folder)), tmp_path / "m.gguf", lambda _: "F32", stop, name="m")
    assert told == sorted(told) and 0 < told[-1] < 1 and sorted(tmp_path.iterdir()) == before
    small = namedtuple("usage", "total used free")(10, 9, 1000)
    monkeypatch.setattr(gguf_export.shutil, "disk_usage", lambda folder: small)
    with pytest.raises(RunFailed, match="its disk has 1 kB free"):
        exported(str(folder), tmp_path / "m.gguf")
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_file_stays(folder, tmp_path):
    (tmp_path / "m.gguf").write_text("mine")
    with pytest.raises(UsageProblem, match="exists"):
        exported(str(folder), tmp_path / "m.gguf")
    with pytest.raises(RunFailed, match="cannot be written"):
        exported(str(folder), tmp_path / "nowhere" / "m.gguf")
    assert (tmp_path / "m.gguf").read_text() == "mine"


def test_the_pair_s_draft_model_goes_by_a_name():
    assert resolve("sample-draft") == str(sample_model("draft")) and known_name("sample-draft") == "sample-draft"
    names = {known_name(str(sample_model(role))) for role in ("draft", "target")}
    assert names == {"sample-draft", "sample"}
