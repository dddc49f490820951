"""``model info``: what is said of a model is what it is, without its weights being fetched or loaded."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, DynamicCache

from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import sample_model
from engines.hub.local_models import difference, look_at, usual_draft, vocabulary
from engines.hub.model_source import locate
from engines.model import description
from engines.model.description import ModelSizes, describe, memory, sizes_of
from engines.model.load_options import LoadOptions
from engines.model.loading import load_model
from spec_tui.session import model_choices
from spec_tui.session.engine_commands import LoadRequest
from tests.conftest import ONE, make_llama, make_tokenizer
from tests.engines import families
from tests.hub import NEEDED, save
from tests.sources.gguf_files import Tiny

NAME = "someone/tiny"
WEIGHTS = "model.safetensors"


def config_of(kind: str, **changes) -> dict[str, bytes]:
    """The files of a model of which only the configuration matters."""
    from transformers import CONFIG_MAPPING

    config = CONFIG_MAPPING[kind](**changes)
    made = {"architectures": ["X"]} | {k: v for k, v in config.to_dict().items() if v is not None}
    return {"config.json": json.dumps(made, default=str).encode()}


FAMILIES = {**families.NAMED, **families.TREES, **families.CHAINS}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_kv_cache_is_as_large_as_said(family, tmp_path):
    model, cache = families.make(*FAMILIES[family]), DynamicCache()
    with torch.inference_mode():
        model(torch.arange(1, 8)[None], past_key_values=cache, use_cache=True)
    layers = [layer for layer in cache.layers if getattr(layer, "keys", None) is not None]
    kept = sum(layer.keys.numel() + layer.values.numel() for layer in layers)
    model.config.save_pretrained(tmp_path)
    assert sizes_of(tmp_path, model.config.get_text_config(decoder=True)).rows * 7 == kept


def test_memory_at_each_dtype_and_where_it_fits():
    shape = ModelSizes("llama", context=256, rows=64)
    found = {m.dtype: m for m in memory(shape, 1000, {"ram": 70_000, "gpus": [{"device": "cuda:0", "memory": 10}]})}
    assert set(found) == {"float32", "bfloat16", "float16"}
    full, half = found["float32"], found["bfloat16"]
    assert (full.weights, full.cache, full.cache_per_1000) == (4000, 64 * 256 * 4, 64 * 1000 * 4)
    assert (half.weights, half.cache, half.cache_per_1000) == (2000, 64 * 256 * 2, 64 * 1000 * 2)
    assert full.fits == {"ram": True, "cuda:0": False}
    sizes = ModelSizes("llama", context=256, rows=64)
    assert memory(sizes, 20_000, {"ram": 70_000, "gpus": []})[0].fits == {"ram": False}
    assert memory(ModelSizes("llama", quantised="gptq"), 1000, {"ram": 1, "gpus": []}) == ()


def test_a_folder(saved):
    found = describe(str(saved))
    model = make_llama(1)
    assert found.parameters == model.num_parameters() and found.stored == {"F32": model.num_parameters()}
    s = found.shape
    assert (s.type, s.architecture, s.layers, s.hidden) == ("llama", "LlamaForCausalLM", 2, 32)
    assert (s.heads, s.kv_heads, s.vocabulary, s.context, s.attention) == (4, 2, 260, 256, {"full": 2})
    assert (found.where, found.drafts, found.problem, found.chat_template) == ("folder", "trees", None, True)
    assert set(found.files) == NEEDED | {WEIGHTS} and found.to_download == 0


@pytest.mark.timeout(20)
@pytest.mark.parametrize("card, licence", [
    ("---\nlicense: mit\n---\n# a card", "mit"), ("---\r\nlicense: 'mit'\r\n---\r\n", "mit"),
    ("---\n\n" + "x" * 200_000 + "\n---\nlicense: mit\n", None), ("---" + "\n" * 1_000_000, None),
])
def test_the_licence_is_read_from_any_model_card(saved, tmp_path, card, licence):
    folder = shutil.copytree(saved, tmp_path / "model")
    (folder / "README.md").write_bytes(card.encode())
    assert describe(str(folder)).licence == licence


@pytest.mark.parametrize("counted", [True, False])
def test_a_hub_id_is_described_without_its_weights(hub, crowded, saved, counted):
    local = describe(str(saved))
    numbers = {"BF16": 123, "F32": 77} if counted else None
    commit = hub.publish(NAME, crowded, licence="apache-2.0", counted=numbers)
    found = describe(NAME)
    assert (found.where, found.licence, found.commit, found.gated) == ("hub", "apache-2.0", commit, False)
    assert found.parameters == (200 if counted else None)
    assert found.shape == local.shape and found.files == local.files
    assert found.to_download == len(crowded[WEIGHTS])
    assert hub.fetched() - {WEIGHTS} == NEEDED
    assert not hub.got(WEIGHTS)
    hub.asked.clear()
    again = describe(NAME)
    assert not hub.fetched() - {WEIGHTS}, "what was fetched to describe it serves again"
    assert again.shape == found.shape


def test_a_gguf_file_of_the_hub_is_not_downloaded_to_be_described(hub, tmp_path):
    hub.publish("someone/files", {"a.gguf": Tiny("llama").write(tmp_path / "m.gguf").read_bytes()})
    with pytest.raises(ModelUnavailable, match=r"a\.gguf is not here, and only its file \(\d") as caught:
        describe("someone/files:a.gguf")
    assert "spec-tui --model someone/files:a.gguf" in caught.value.hint and not hub.fetched()
    locate("someone/files:a.gguf")
    assert describe("someone/files:a.gguf").where == "file"


def test_a_cached_model_is_described_offline(hub, crowded):
    hub.publish(NAME, crowded, "v1")
    locate(NAME, "v1").fetch_weights()
    hub.asked.clear()
    hub.offline()
    found = describe(NAME, LoadOptions(revision="v1"))
    assert (found.where, found.to_download, found.revision) == ("cache", 0, "v1") and hub.asked == []
    with pytest.raises(ModelUnavailable, match="HF_HUB_OFFLINE"):
        describe("other/model")
    with pytest.raises(UsageProblem):
        describe(NAME, LoadOptions(revision=""))


def test_sharded_weights_are_counted_over_all_files(tmp_path):
    make_tokenizer().save_pretrained(tmp_path)
    make_llama(1).save_pretrained(tmp_path, max_shard_size="40KB")
    assert describe(str(tmp_path)).parameters == make_llama(1).num_parameters()


@pytest.mark.parametrize(
    "kind, changes, drafts, attention, words",
    [
        ("gpt2", {"n_layer": 3}, "trees", {"full": 3}, None),
        ("mistral", {"sliding_window": 64, "num_hidden_layers": 3}, "trees", {"window 64": 3}, None),
        ("gemma3_text", {"sliding_window": 512, "num_hidden_layers": 7}, "trees", {"window 512": 6, "full": 1}, None),
        ("mamba", {}, None, None, "running state"),
        ("jamba", {}, None, None, "running state"),
        ("t5", {}, None, None, "not a causal"),
    ],
)
def test_trees_chains_or_refused_by_the_configuration(hub, crowded, kind, changes, drafts, attention, words):
    hub.publish(NAME, crowded | config_of(kind, **changes))
    found = describe(NAME)
    assert found.drafts == drafts and found.shape.type == kind
    assert words in found.problem if words else found.problem is None
    if attention is not None:
        assert found.shape.attention == attention
    assert WEIGHTS not in {a.path.rpartition("/")[2] for a in hub.asked if a.range is None and a.method == "GET"}


def test_an_encoder_is_suspected_by_what_it_was_saved_as(hub, crowded):
    hub.publish(NAME, crowded | config_of("bert"))
    assert any("perhaps an encoder" in remark for remark in describe(NAME).remarks)
    hub.publish("someone/neox", crowded | config_of("gpt_neox", architectures=["GPTNeoXForCausalLM"]))
    assert not describe("someone/neox").remarks


def test_what_is_refused_is_described_with_the_way_out(hub, crowded, tmp_path):
    pickled = {n: d for n, d in crowded.items() if not n.endswith("safetensors")}
    hub.publish(NAME, pickled)
    found = describe(NAME)
    assert "pickled" in found.problem and "--allow-pickle" in found.hint
    assert (found.parameters, found.weights, found.memory) == (None, "pickled", ())
    assert describe(NAME, LoadOptions(allow_pickle=True)).problem is None
    own = json.loads(crowded["config.json"]) | {"model_type": "own", "auto_map": {"AutoConfig": "modeling_own.Own"}}
    hub.publish("someone/own", crowded | {"config.json": json.dumps(own).encode()})
    found = describe("someone/own")
    assert "code of its own" in found.problem and "--trust-remote-code" in found.hint
    assert found.shape.type == "own" and "modeling_own.py" not in hub.fetched()


def test_which_draft_models_fit_and_why_the_others_do_not(hub, crowded, tmp_path):
    hub.publish(NAME, crowded)
    save(tmp_path / "small", layers=1)
    size = make_llama(1, layers=1).num_parameters()
    hub.publish("someone/small", tmp_path / "small", counted={"F32": size})
    save(tmp_path / "large", layers=5)
    hub.publish("someone/large", tmp_path / "large")
    tokenizer = json.loads(crowded["tokenizer.json"])
    vocab = tokenizer["model"]["vocab"]
    vocab["ZZ"] = vocab.pop("Ā")
    hub.publish("someone/other", crowded | {"tokenizer.json": json.dumps(tokenizer).encode()})
    for name in ("someone/small", "someone/large", "someone/other"):
        describe(name)
    found = describe(NAME, LoadOptions(draft_model="someone/small"))
    by_name = {c.name: c for c in found.draft_models}
    assert next(iter(by_name)) == "someone/small" and NAME not in by_name
    small, large, other, sample = (
        by_name[n] for n in ("someone/small", "someone/large", "someone/other", "sample draft")
    )
    assert (small.fits, small.origin, small.parameters) == (True, "named", size)
    assert large.fits and large.why == "the same tokens; no weights here, not downloaded"
    assert other.fits and other.share == pytest.approx(259 / 260) and "1 of 260 tokens differ" in other.why
    assert "'ZZ'" in other.why and "'Ā'" in other.why
    assert sample.fits and "it has all tokens of the target" in sample.why
    twin = describe(str(tmp_path / "small"), LoadOptions(draft_model=str(tmp_path / "large"))).draft_models[0]
    assert twin.fits and "no smaller" in twin.why


def test_a_draft_model_beside_the_target_is_found(sample_gguf, tmp_path):
    target, small = (tmp_path / name for name in ("large.gguf", "small.gguf"))
    for link, file in zip((target, small), sample_gguf):
        link.symlink_to(file)
    Tiny("llama").write(tmp_path / "other.gguf")  # of another vocabulary
    Tiny("llama").write(tmp_path / "part-00002-of-00002.gguf", lambda writer: [
        writer.add_uint16("split.no", 1), writer.add_uint16("split.count", 2)])
    assert (usual := usual_draft(target)).place == small and (usual.fits, usual.origin) == (True, "beside the target")
    assert usual_draft(small).place != target, "a model that is no smaller is not taken by itself"
    first, *_ = describe(str(target)).draft_models
    assert (first.name, first.origin, first.same) == ("small.gguf", "beside", True)
    chosen = model_choices.targets(LoadRequest(model=str(target)))
    mine = next(choice for choice in chosen if choice.folder == target.resolve())
    first, second, *_ = model_choices.drafts(replace(mine, folder=target), ())
    assert (first.folder, first.same, second.same) == (small, True, False)


def test_parameters_and_weights_are_called_as_people_call_them(tmp_path, saved):
    class Twice(Tiny):
        def put(self, writer, name, rows, columns):
            state = self.rng.bit_generator.state
            super().put(writer, name, rows, columns)
            if name == "token_embd.weight":  # once more, in another type, as Qwen's own files have it
                self.rng.bit_generator.state, before = state, self.kind
                self.kind = gguf.GGMLQuantizationType.Q8_0
                super().put(writer, "output.weight", rows, columns)
                self.kind = before

    def named(writer):
        writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
        writer.add_name("Tiny \x1b[2J 1B")

    plain = describe(str(Tiny("qwen2", "Q4_0").write(tmp_path / "plain.gguf")))
    assert (plain.title, plain.stored_as) == (str(tmp_path / "plain.gguf"), "Q4_0")
    file = Twice("qwen2", "Q4_0").write(tmp_path / "twice.gguf", named)
    found = describe(str(file))
    assert found.parameters == plain.parameters and sum(found.stored.values()) > plain.parameters
    assert (found.title, found.stored_as) == ("Tiny \x1b[2J 1B", "Q4_K_M")
    facts = look_at(file)
    assert (facts["parameters"], facts["dtype"], facts["title"]) == (found.parameters, "Q4_K_M", found.title)
    folder = tmp_path / "folder"
    shutil.copytree(saved, folder)
    weights = load_file(folder / WEIGHTS)
    config = json.loads((folder / "config.json").read_text())
    for tied, count in ((True, 1), (False, 2)):
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, folder / WEIGHTS)
        (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": tied}))
        rest = sum(w.numel() for name, w in weights.items() if name != "lm_head.weight")
        wanted = rest + (count - 1) * weights["lm_head.weight"].numel()
        assert describe(str(folder)).parameters == look_at(folder)["parameters"] == wanted


def test_vocabularies_are_read_as_the_tokenizer_has_them(tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    made = {
        "unigram": models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0),
        "wordpiece": models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"),
        "bpe": models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]),
    }
    folders = [sample_model("target")]
    for name, model in made.items():
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
        tokenizer.add_tokens(["<new>", "two words"])
        tokenizer.add_special_tokens({"pad_token": "<pad>"})
        tokenizer.save_pretrained(tmp_path / name)
        folders.append(tmp_path / name)
    for folder in folders:
        found = vocabulary(folder)
        assert found == AutoTokenizer.from_pretrained(folder).get_vocab() and difference(found, dict(found)) is None


def test_tokenizers_that_cannot_be_compared_say_so(saved, tmp_path):
    folder = save(tmp_path / "model")
    (folder / "tokenizer.json").write_text("[]")
    assert "damaged" in describe(str(saved), LoadOptions(draft_model=str(folder))).draft_models[0].why
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"sentencepiece")
    named = describe(str(saved), LoadOptions(draft_model=str(folder))).draft_models[0]
    assert named.fits is None and "compared at loading" in named.why


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_what_half_precision_takes_is_said_before_it_is_loaded(dtype):
    (said,) = (m for m in describe("sample").memory if m.dtype == dtype)
    loaded = load_model(str(sample_model("target")), replace(ONE, dtype=dtype))
    assert said.weights == pytest.approx(loaded.weight_bytes, rel=0.01)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("choice", ["auto", "int8", "int4"])
def test_what_a_quantised_model_takes_is_said_before_it_is_loaded(choice, native, monkeypatch):
    if not native:
        monkeypatch.setattr(description, "obtainable", lambda: False)
    said = {m.quantize: m.weights for m in describe("sample").memory if m.dtype == "float32"}
    loaded = load_model(str(sample_model("target")), replace(ONE, native=native, quantize=choice))
    if native:
        assert {m.dtype: m.weights for m in describe("sample").memory if m.quantize == "auto"} == dict.fromkeys(
            ("float32", "bfloat16", "float16"), said["auto"]), "weights of a bfloat16 file stay as they are stored"
        assert set(said) == {"auto", "int8", "int4"}  # its file is on no grid
    else:
        assert set(said) == {"auto"}, "only native code multiplies integers"
    assert said.get(choice, said["auto"]) == pytest.approx(loaded.weight_bytes, rel=0.01)
