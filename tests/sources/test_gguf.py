"""GGUF files: read as llama.cpp reads them, or refused with a sentence."""

from __future__ import annotations

import math
import os
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engines import folders
from engines.errors import ModelUnavailable, UsageProblem
from engines.hub import gguf_file, gguf_folder, local_models
from engines.hub.gguf_config import Unsupported
from engines.hub.known_models import KNOWN, choose, default_model, default_notice
from engines.hub.model_source import locate
from engines.model import loading
from engines.model.description import describe
from engines.model.load_options import LoadOptions
from tests.sources.gguf_files import FAMILIES, LAYERS, PIECES, SPECIAL, Tiny
from tests.sources.llama_cpp import LlamaCpp

PROMPT = [5, 80, 81, 90, 7, 100, 101, 33, 44, 60]
HARD = (
    "Hello 12345 world  3.14", "café naïve 🙂 x=12", "def f(x):\n    return x**2\n\n", "  tab\tnew  ",
    "½ ٣ Ⅷ 一二三 x²", "don't I'LL we'd", "\r\n\r\n a", "<|im_end|> a", "a" * 50 + " 1 000 000", "the thin then !!!",
    "\u200b\u0301e\ufeff",
)  # fmt: skip
SPACES = ("a  the", "a   b\n\n    the", " " * 2, " " * 5, " " * 13, " " * 64, " " * 129 + "the", "\t\t a",
          "the <b>  in <b>", "in\n  \n\n\n thé 漢", "<eos> a   <pad>")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path / "cache"))


def model_of(path: Path):
    """The model in float32 as transformers computes it."""
    return loading.read_model(locate(str(path)), torch.float32, torch.device("cpu")).eval()


@torch.no_grad()
def difference(path: Path) -> float:
    """The largest difference of a log-probability from llama.cpp's, over the 200 likeliest tokens."""
    ours = model_of(path)(torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
    theirs = LlamaCpp(path).logprobs(PROMPT, 200, ord("a"))
    assert len(theirs) == 200 and max(theirs.values()) - min(theirs.values()) > 1
    return max(abs(ours[token].item() - value) for token, value in theirs.items())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_what_llama_cpp_computes(family, tmp_path):
    assert difference(Tiny(family).write(tmp_path / "m.gguf")) < 0.01


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q8_0", "Q3_K", "Q4_K", "Q5_K", "Q6_K"])
def test_every_type_is_unpacked_as_llama_cpp_reads_it(kind, tmp_path):
    # llama.cpp rounds activations to 8 bits where weights are quantised: logits over a range of 4 to 9 move by so much
    assert difference(Tiny("llama", kind).write(tmp_path / "m.gguf")) < 0.25


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q6_K"])
def test_numbers_are_those_that_the_gguf_package_unpacks(kind, tmp_path):
    file = gguf_file.read(Tiny("qwen2", kind).write(tmp_path / "m.gguf"))  # of its rows none are in another order
    content, names = file.content(), gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, LAYERS)
    parameters = model_of(file.path).named_parameters()
    ours = {names.get_name(name, (".weight", ".bias")): weight for name, weight in parameters}
    for tensor in file.tensors:
        stored = content[tensor.begin : tensor.begin + tensor.size].reshape(*tensor.shape[:-1], -1)
        theirs = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType[tensor.kind]).reshape(tensor.shape)
        assert np.array_equal(ours.pop(tensor.name).detach().numpy(), theirs), tensor.name
    assert not ours


CUTS = [("llama", "gpt-2"), ("llama", "smollm"), ("llama", "llama-bpe"), ("qwen2", "qwen2"), ("qwen3", "qwen2")]


@pytest.mark.parametrize("family, pre", CUTS)
def test_text_is_cut_as_llama_cpp_cuts_it(family, pre, tmp_path):
    path = Tiny(family, pre=pre).write(tmp_path / "m.gguf")
    tokenizer = loading.load_tokenizer(str(path))
    oracle = LlamaCpp(path)
    assert local_models.vocabulary(path) == tokenizer.get_vocab(), "so a draft model can be compared with the file"
    texts = (*HARD, *SPACES)
    assert {text: tokenizer(text).input_ids for text in texts} == {text: oracle.tokens(text) for text in texts}


def test_runs_of_spaces_are_the_longest_symbols_of_the_vocabulary(tmp_path):
    """As SentencePiece cuts them, and llama.cpp; the fast tokenizers of the hub join them by pairs instead."""
    path = Tiny("gemma3", pre=PIECES).write(tmp_path / "m.gguf")
    tokenizer = loading.load_tokenizer(str(path))
    oracle, found = LlamaCpp(path), {text: tokenizer(text).input_ids for text in SPACES}
    assert found == {text: oracle.tokens(text) for text in SPACES}
    two, five = (tokenizer.convert_tokens_to_ids("▁" * n) for n in (2, 5))
    assert found[" " * 64] == [tokenizer.bos_token_id, *[five] * 12, tokenizer.convert_tokens_to_ids("▁" * 4)]
    assert tokenizer.decode([two, five, two]) == " " * 9
    assert tokenizer("a▁▁ the").input_ids == tokenizer("a   the").input_ids, "where llama.cpp has three tokens"


def test_norms_that_are_stored_with_an_offset_are_rounded_once(tmp_path):
    source = locate(str(Tiny("gemma3", "BF16", pre=PIECES).write(tmp_path / "m.gguf")))
    full, half = (loading.read_model(source, dtype, torch.device("cpu")) for dtype in (torch.float32, torch.bfloat16))
    for (name, weight), rounded in zip(full.named_parameters(), half.parameters()):
        assert torch.equal(weight.bfloat16(), rounded), name
    assert loading.weights_fingerprint(full) == loading.weights_fingerprint(half)


def test_what_the_file_says_of_answers_is_kept(tmp_path):
    path = Tiny("qwen2").write(tmp_path / "m.gguf")
    file = gguf_file.read(path)
    folder = gguf_folder.prepared(file)
    tokenizer = loading.load_tokenizer(str(path))
    ends = file.metadata["tokenizer.ggml.tokens"].index("<|end|>"), len(tokenizer) - 1
    assert gguf_folder.ends_of_answer(file) == list(ends)  # the one it names, and <|im_end|>
    assert tokenizer.apply_chat_template([{"content": "hi"}], tokenize=False) == "<|user|>hi"
    assert tokenizer.model_max_length == 256 and tokenizer.eos_token == SPECIAL[0]
    assert gguf_folder.prepared(file) == folder and not list(folder.parent.glob("tmp*"))


def test_a_model_is_read_where_the_cache_cannot_be_written(tmp_path, monkeypatch):
    path = Tiny("qwen2").write(tmp_path / "m.gguf")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(path / "below"))
    folder = locate(str(path)).folder
    assert loading.load_tokenizer(str(path)).model_max_length == 256 and locate(str(path)).folder == folder
    folders.remove_temporary_folder()
    assert [place.name for place in tmp_path.iterdir()] == ["m.gguf"], "nothing is left behind"
    monkeypatch.setattr(tempfile, "tempdir", str(path / "below"))
    with pytest.raises(ModelUnavailable) as caught:
        locate(str(path))
    assert caught.value.message == f"the cache folder {path / 'below'} cannot be written (Not a directory)"
    assert caught.value.hint == "SPEC_TUI_CACHE_DIR names another one"


def llama3_factors(theta: float = 10_000.0) -> np.ndarray:
    turns = 8192 / (2 * np.pi * theta ** (np.arange(0, 64, 2) / 64))
    smooth = np.clip((turns - 1) / 3, 0, 1)
    return (1 / ((1 - smooth) / 8 + smooth)).astype(np.float32)


def test_the_scaled_positions_of_llama_3_are_recognised(tmp_path):
    path = Tiny("llama").write(tmp_path / "m.gguf", lambda w: w.add_tensor("rope_freqs.weight", llama3_factors()))
    assert model_of(path).config.rope_parameters["rope_type"] == "llama3"
    assert difference(path) < 0.01


def scaling(family: str, kind: str = "", **settings: float):
    """A change that states how positions are scaled; ``kind``: "" for a file that does not state it."""
    def change(writer):
        if kind:
            writer.add_string(f"{family}.rope.scaling.type", kind)
        if kind == "yarn":
            writer.add_uint32(f"{family}.rope.scaling.original_context_length", 8)
        for name, value in settings.items():
            writer.add_float32(f"{family}.rope.{'' if name == 'scale_linear' else 'scaling.'}{name}", value)
    return change


YARN = 1 + 0.1 * math.log(4)  # what rotated numbers are multiplied by where positions are scaled by 4
USUAL = {"yarn_beta_fast": 32, "yarn_beta_slow": 1, "yarn_ext_factor": 1, "yarn_attn_factor": YARN, "attn_factor": 1}


@pytest.mark.parametrize("change", [
    scaling("llama", factor=4), scaling("llama", scale_linear=4), scaling("llama", "linear", factor=4),
    scaling("llama", "none", factor=4), scaling("llama", "yarn", factor=4), scaling("llama", "yarn", factor=4, **USUAL),
], ids=("unnamed", "older name", "linear", "none", "yarn", "yarn with its usual settings"))
def test_positions_are_scaled_as_llama_cpp_scales_them(change, tmp_path):
    assert difference(Tiny("llama").write(tmp_path / "m.gguf", change)) < 0.01


@pytest.mark.parametrize("change", [
    scaling("llama", "yarn", factor=4, attn_factor=0.5), scaling("llama", "linear", factor=4, attn_factor=YARN),
    scaling("llama", attn_factor=0.5), scaling("llama", "yarn", factor=4, yarn_attn_factor=0.5),
    scaling("llama", "yarn", factor=4, yarn_beta_fast=8), scaling("llama", "yarn", factor=4, yarn_beta_slow=2),
    scaling("llama", "yarn", factor=4, yarn_ext_factor=0), scaling("llama", "yarn", factor=4, yarn_log_multiplier=0.1),
    scaling("llama", factor=4, alpha=1000),
])
def test_unusual_settings_of_a_scaling_are_refused(change, tmp_path):
    assert "its positions are scaled with" in refused(tmp_path, change)


def test_windows_are_on_the_layers_that_the_file_states(tmp_path):
    """An OLMo 3 has them, and scaled positions on the other layers alone; llama.cpp calls it an OLMo 2."""
    path, yarn = tmp_path / "m.gguf", scaling("olmo2", "yarn", factor=4)
    olmo3 = Tiny("olmo2", window=4)
    assert difference(olmo3.write(path, lambda w: (w.add_sliding_window_pattern(2), yarn(w)))) < 0.01
    assert difference(Tiny("olmo2", window=4).write(path, yarn)) < 0.01
    assert difference(Tiny("gemma3").write(path, lambda w: w.add_sliding_window_pattern(2))) < 0.01
    config = model_of(Tiny("olmo2", window=4).write(path, lambda w: w.add_sliding_window_pattern([False, True]))).config
    assert config.layer_types == ["full_attention", "sliding_attention"]


def test_a_yarn_factor_of_attention_that_an_older_converter_wrote_is_not_applied_twice(tmp_path):
    """It wrote for OLMo 3 what transformers has, of which llama.cpp takes its own part for granted."""
    changes = scaling("olmo2", "yarn", factor=4), scaling("olmo2", "yarn", factor=4, attn_factor=YARN)
    once, older = (model_of(Tiny("olmo2", window=4).write(tmp_path / "m.gguf", change)) for change in changes)
    assert torch.equal(once(torch.tensor([PROMPT])).logits, older(torch.tensor([PROMPT])).logits)


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "granite"])
def test_a_window_that_a_family_does_not_have_is_refused_unless_it_is_off(family, tmp_path):
    assert f"not read for {family}" in refused(tmp_path, lambda w: None, family, window=4)
    assert difference(Tiny(family, window=256).write(tmp_path / "m.gguf")) < 0.01


def test_windows_on_other_layers_than_there_can_be_are_refused(tmp_path):
    assert "sliding_window_pattern, which is not read" in refused(
        tmp_path, lambda w: w.add_sliding_window_pattern([True, False]), window=4)
    assert "does not say of each layer" in refused(
        tmp_path, lambda w: w.add_sliding_window_pattern([True] * 3), "olmo2", window=4)


def refused(tmp_path, change, family="llama", **more) -> str:
    path = Tiny(family, **more).write(tmp_path / "bad.gguf", change)
    with pytest.raises(ValueError) as caught:
        gguf_folder.prepared(gguf_file.read(path))
    assert not (tmp_path / "cache" / "gguf").exists() or not list((tmp_path / "cache" / "gguf").iterdir())
    return str(caught.value)


def test_what_would_be_read_almost_right_is_refused(tmp_path):
    own = (llama3_factors() * 1.5).astype(np.float32)
    assert "factors of its own" in refused(tmp_path, lambda w: w.add_tensor("rope_freqs.weight", own))
    assert "longrope" in refused(tmp_path, lambda w: (
        w.add_string("llama.rope.scaling.type", "longrope"), w.add_float32("llama.rope.scaling.factor", 4.0),
    ))
    assert "both by one factor" in refused(tmp_path, lambda w: (
        w.add_tensor("rope_freqs.weight", llama3_factors()), scaling("llama", factor=4)(w),
    ))
    assert "mystery" in refused(tmp_path, lambda w: None, pre="mystery")
    part = Tiny("llama")
    part.tokens[3] = part.tokens[4]
    path = part.write(tmp_path / "twice.gguf")
    with pytest.raises(Unsupported, match="twice"):
        gguf_folder.prepared(gguf_file.read(path))


@pytest.mark.parametrize("change", [
    lambda w: w.add_float32("llama.rope.freq_base", float("nan")),
    lambda w: w.add_float32("llama.rope.freq_base", -3.5),
    lambda w: w.add_string("llama.rope.freq_base", "abc"), lambda w: w.add_string("llama.attention.key_length", "64"),
    lambda w: w.add_float32("llama.rope.scaling.factor", float("inf")),
    lambda w: w.add_int32("llama.attention.sliding_window", -7),
])
def test_a_setting_that_is_no_positive_number_is_refused(change, tmp_path):
    assert "which is not a positive number" in refused(tmp_path, change)


def test_factors_that_are_no_positive_float32_are_refused(tmp_path):
    half, zeros = llama3_factors().astype(np.float16), np.zeros_like(llama3_factors(), np.float32)
    assert "rope_freqs.weight is F16" in refused(tmp_path, lambda w: w.add_tensor("rope_freqs.weight", half))
    assert "not positive numbers" in refused(tmp_path, lambda w: w.add_tensor("rope_freqs.weight", zeros))


def test_sizes_that_make_no_sense_are_refused_and_listed_as_a_problem(tmp_path):
    said = refused(tmp_path, lambda w: (
        w.add_uint32("llama.attention.key_length", 0), w.add_uint32("llama.embedding_length", 2)))
    assert said == "its embedding_length 2 is less than its attention.head_count 4"
    assert local_models.look_at(tmp_path / "bad.gguf")["problem"] == said
    assert "it rotates 512 numbers of heads that have 64" in refused(
        tmp_path, lambda w: w.add_uint32("phi3.rope.dimension_count", 512), "phi3")
    many = np.ones(99, np.float32)
    assert "by 99 factors" in refused(tmp_path, lambda w: w.add_tensor("rope_freqs.weight", many))


def test_another_architecture_is_named_with_those_that_are_read(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file(), writer.write_kv_data_to_file(), writer.write_tensors_to_file(), writer.close()
    with pytest.raises(Unsupported, match="mamba; these are read: llama, qwen2"):
        gguf_folder.prepared(gguf_file.read(tmp_path / "m.gguf"))


def test_more_threads_than_processors_are_refused_only_where_they_are_asked_for(tmp_path):
    path = str(Tiny("llama", "F32").write(tmp_path / "m.gguf"))
    before, many = torch.get_num_threads(), (os.cpu_count() or 1) + 1
    torch.set_num_threads(many)  # as OMP_NUM_THREADS may have it
    try:
        loading.load_models(LoadOptions(path, path, device="cpu"))
        assert torch.get_num_threads() == many
        with pytest.raises(UsageProblem, match=f"{many} threads are more"):
            loading.load_models(LoadOptions(path, path, device="cpu", threads=many))
    finally:
        torch.set_num_threads(before)


def test_an_empty_name_of_a_draft_model_names_none(tmp_path):
    path = str(Tiny("llama", "F32").write(tmp_path / "m.gguf"))
    *_, draft, warnings = loading.load_models(LoadOptions(path, "", device="cpu"))
    assert draft is None and "no draft model here fits" in warnings[0]


def test_a_draft_model_that_nobody_named_and_that_fails_is_left_out(tmp_path):
    class Damaged(Tiny):
        def _norm(self, writer, name, size):
            writer.add_tensor(name, np.full(size, np.nan, np.float32))

    target = str(Tiny("llama", "Q8_0", head=256).write(tmp_path / "large.gguf"))
    beside = str(Damaged("llama", "Q8_0").write(tmp_path / "small.gguf"))
    *_, draft, warnings = loading.load_models(LoadOptions(target, device="cpu"))
    assert draft is None and warnings[0].startswith("no draft model is used: the weight ")
    with pytest.raises(ModelUnavailable, match="is damaged: some of its numbers are nan"):
        loading.load_models(LoadOptions(target, beside, device="cpu"))


def test_a_file_is_a_model_like_any_other(tmp_path):
    path = Tiny("llama", "Q8_0").write(tmp_path / "m.gguf", lambda writer: writer.add_license("mit"))
    target, tokenizer, draft, _ = loading.load_models(
        LoadOptions(str(path), str(path), dtype="bfloat16", device="cpu"))
    assert target.name == draft.model.name == str(path) and target.trees and tokenizer.vocab_size == 276
    assert target.fingerprint == loading.load_model(str(path), LoadOptions(device="cpu")).fingerprint
    found = describe(str(path))
    assert (found.where, found.weights, found.problem, found.shape.layers) == ("file", "GGUF", None, 2)
    assert found.folder == str(path)
    assert set(found.stored) == {"F32", "Q8_0"} and found.files["m.gguf"] == path.stat().st_size
    assert found.chat_template and not found.to_download and found.licence == "mit"


def unavailable(name: str) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        locate(name)
    assert caught.value.hint
    return f"{caught.value.message} | {caught.value.hint}"


def test_what_is_no_model_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "n.gguf").write_bytes(b"hello")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty.gguf").touch()
    assert "m.gguf is cut off" in unavailable(str(tmp_path / "m.gguf"))
    assert "n.gguf is not a GGUF file" in unavailable(str(tmp_path / "n.gguf"))
    assert "empty.gguf is not a GGUF file" in unavailable(str(tmp_path / "empty.gguf"))
    assert "is a file, not a model" in unavailable(str(tmp_path / "notes.txt"))
    assert "no model folder" in unavailable(str(tmp_path / "missing.gguf"))


def test_a_known_model_that_is_not_here_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_DATA_DIR", str(tmp_path))
    assert "spec-tui model get smollm2" in unavailable("smollm2")
    assert default_model() == str(locate("sample").folder) and "spec-tui model get fetches smollm2" in default_notice()
    monkeypatch.setitem(KNOWN, "smollm2", replace(KNOWN["smollm2"], size=(path := tmp_path / "tiny.gguf").write_bytes(
        Tiny("llama").write(tmp_path / "source.gguf").read_bytes()
    )))
    known = KNOWN["smollm2"]
    assert not known.present
    known.path.parent.mkdir(parents=True)
    path.rename(known.path)
    assert known.present and default_model() == "smollm2" and locate("smollm2").gguf.path == known.path
    assert default_notice().startswith("no model is named, so smollm2 answers") and "--model sample" in default_notice()
    choose("sample")
    said = default_notice()
    assert "answers: --model smollm2 takes another one, spec-tui model get fetches qwen-coder (1.61 GB)" in said


def test_one_file_of_a_repository_is_fetched(tmp_path, hub):
    content = Tiny("llama", "Q8_0").write(tmp_path / "m.gguf").read_bytes()
    hub.publish("someone/files", {"a.gguf": content, "b.gguf": b"never asked for", "README.md": b"-"})
    source = locate("someone/files:a.gguf")
    assert source.gguf.path.read_bytes() == content and source.name == "someone/files:a.gguf"
    before = len(hub.asked)
    assert locate("someone/files:a.gguf").folder == source.folder and len(hub.asked) == before
    assert not any("b.gguf" in asked.path for asked in hub.asked)
    assert "it has a.gguf, b.gguf" in unavailable("someone/files:c.gguf")
    assert "someone/files:FILE: a.gguf, b.gguf" in unavailable("someone/files")


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def header(tensors: int = 0, entries: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries)


def tensor(name: str, *sizes: int, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


BAD = {
    "not a GGUF file": b"GGML" + bytes(100),
    "version 1": header(version=1),
    "cut off": b"GGUF\x03\x00",
    "tensors": header(tensors=10**18),
    "entries": header(entries=10**18),
    "items": header(entries=1) + text("a.b") + struct.pack("<IIQ", 9, 8, 10**18),
    "longer than": header(entries=1) + text("a.b") + struct.pack("<IQ", 8, 1 << 62),
    "invalid characters": header(tensors=1) + tensor("../../etc/passwd", 32),
    "of type 77": header(entries=1) + text("a.b") + struct.pack("<I", 77),
    "array of type 9": header(entries=1) + text("a.b") + struct.pack("<IIQ", 9, 9, 1),
    "twice": header(entries=2) + (text("a.b") + struct.pack("<II", 4, 1)) * 2,
    "9 dimensions": header(tensors=1) + tensor("a", *[1] * 9),
    "larger than the file": header(tensors=1) + tensor("a", 1 << 40, 1 << 40),
    "beyond its end": header(tensors=1) + tensor("a", 64, offset=1 << 40),
    "overlaps": header(tensors=2) + tensor("a", 64) + tensor("b", 64, offset=32) + bytes(2000),
    "not known here": header(tensors=1) + tensor("a", 64, kind=99) + bytes(2000),
    "not whole blocks": header(tensors=1) + tensor("a", 33, kind=8) + bytes(2000),
    "alignment is invalid": header(entries=1) + text("general.alignment") + struct.pack("<II", 4, 0),
}  # fmt: skip


@pytest.mark.parametrize("reason", BAD)
def test_a_damaged_file_is_refused_with_the_reason(reason, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(BAD[reason])
    with pytest.raises(ValueError, match=reason) as caught:
        gguf_file.read(path)
    assert str(caught.value).startswith("m.gguf ")


def test_a_file_cut_anywhere_or_with_any_byte_changed_is_read_or_refused(tmp_path):
    whole = Tiny("llama").write(tmp_path / "whole.gguf").read_bytes()
    end = gguf_file.read(tmp_path / "whole.gguf").tensors[0].begin
    path, rng = tmp_path / "m.gguf", np.random.default_rng(0)
    for at in rng.integers(0, end, 150):
        path.write_bytes(whole[:at])
        with pytest.raises(ValueError):
            gguf_file.read(path)
        changed = bytearray(whole)
        changed[at] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            gguf_file.read(path)
        except ValueError as error:
            assert str(error).startswith("m.gguf ")
