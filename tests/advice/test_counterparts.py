"""What is pasted into other programs works there: paths, flags, fields, files of the right kind."""

from __future__ import annotations

import json
import shlex
import urllib.request

import pytest

from engines import methods
from engines.folders import sample_model
from engines.methods.counterparts import DraftSetup, ModelFiles, assisted, llama_cpp, vllm
from spec_tui.export.paste_files import model_files, same_tokens

# Of vLLM's SpeculativeConfig, as ``tools/test_vllm.py`` and ``spec-tui head export`` give it to a real one.
FIELDS = {"method", "model", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min",
          "suffix_decoding_max_tree_depth", "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob"}
# As SGLang's documentation lists them.
SGLANG = {"--model-path", *(f"--speculative-{name}" for name in (
    "algorithm", "draft-model-path", "num-steps", "eagle-topk", "num-draft-tokens", "ngram-match-type",
    "ngram-max-bfs-breadth", "ngram-max-trie-depth"))}
PLACES = {  # llama-server's flags in the library's settings
    "--model": ("model", "path"), "--spec-draft-model": ("speculative", "draft", "mparams", "path"),
    "--spec-draft-n-max": ("speculative", "draft", "n_max"), "--spec-draft-p-min": ("speculative", "draft", "p_min"),
    "--spec-ngram-simple-size-n": ("speculative", "ngram_simple", "size_n"),
    "--spec-ngram-simple-size-m": ("speculative", "ngram_simple", "size_m"),
}
TARGET, DRAFT = ModelFiles("/t/a b.gguf", gguf="/t/a b.gguf", beside="/here/a"), ModelFiles("o/d", folder="o/d")
SPECS = [spec for spec in methods.specs() if spec.counterparts]


def pasted(spec, given, setup) -> dict:
    return {each.program: each for each in spec.counterparts(spec.parse(given), setup)}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
def test_every_setting_that_is_tried_has_its_counterparts(spec):
    for given in ({}, *spec.variants, *spec.trials):
        found = pasted(spec, given, DraftSetup(3, TARGET, DRAFT, head="head", family="EAGLE-3"))
        assert found and set(found) <= {"vLLM", "SGLang", "llama.cpp", "transformers"}
        assert all(each.paste.isascii() and "None" not in each.paste for each in found.values())
        *before, line = found["vLLM"].paste.split("\n")
        assert before[0] == "spec-tui model export '/t/a b.gguf' --type bf16 --output /here/a-BF16"
        *words, config = shlex.split(line)
        assert words == ["vllm", "serve", "/here/a-BF16", "--speculative-config"]
        assert set(json.loads(config)) <= FIELDS and json.loads(config)["num_speculative_tokens"] > 0
        if "SGLang" in found:
            flags = shlex.split(found["SGLang"].paste.split("\n")[-1])[3:]
            assert set(flags[::2]) <= SGLANG and found["SGLang"].paste.startswith("# not tried here")
        if "transformers" in found:
            compile(found["transformers"].paste, "pasted", "exec")


@pytest.mark.parametrize("family, method", [("EAGLE", "eagle"), ("EAGLE-3", "eagle3")])
def test_vllm_is_told_the_family_of_the_head(family, method):
    line = pasted(methods.find("eagle"), {}, DraftSetup(3, TARGET, head="head", family=family))["vLLM"].paste
    assert json.loads(shlex.split(line.split("\n")[-1])[-1])["method"] == method


@pytest.mark.parametrize("engine, given", [("draft", {}), ("draft", {"stop": "top", "confidence": 0.5}), ("pld", {})])
def test_the_line_for_llama_cpp_starts_it(sample_gguf, engine, given):
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here to start")
    from tests.sources.llama_cpp import served

    target, draft = (model_files(str(file)) for file in sample_gguf)
    line = pasted(methods.find(engine), given, DraftSetup(3, target, draft))["llama.cpp"].paste
    program, *words = shlex.split(line)
    flags = dict(zip(words[::2], words[1::2], strict=True))
    assert program == "llama-server" and flags["--model"] == str(sample_gguf[0])
    assert flags.get("--spec-draft-model", str(sample_gguf[1])) == str(sample_gguf[1])
    settings = xllamacpp.CommonParams()
    settings.n_ctx, settings.n_parallel, settings.warmup, settings.verbosity = 256, 1, False, -1
    settings.cpuparams.n_threads = 1
    kind = flags.pop("--spec-type").replace("-", "_").upper()
    settings.speculative.types = [getattr(xllamacpp.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    for flag, value in flags.items():
        *path, name = PLACES[flag]
        there = settings
        for part in path:
            there = getattr(there, part)
        setattr(there, name, type(getattr(there, name))(value))
    server = served(settings)
    asked = urllib.request.Request(
        f"{server.listening_address}/completion",
        json.dumps({"prompt": "one two one two", "n_predict": 8, "temperature": 0, "ignore_eos": True}).encode(),
        {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=60) as answer:
        assert json.load(answer)["tokens_predicted"] == 8


@pytest.mark.parametrize("form", ["folder", "file"])
def test_the_lines_for_transformers_run(sample_gguf, form):
    places = sample_gguf if form == "file" else (sample_model("target"), sample_model("draft"))
    if form == "file":
        pytest.importorskip("accelerate", reason="transformers reads no GGUF file without it")
    target, draft = (model_files(str(place)) for place in places)
    lines = pasted(methods.find("draft"), {}, DraftSetup(3, target, draft))["transformers"].paste.split("\n")
    lines[-1] = f"found = {lines[-1][:-1]}, max_new_tokens=4, do_sample=False)"
    room: dict = {}
    exec("\n".join(lines), room)
    assert room["found"].shape[1] == room["inputs"]["input_ids"].shape[1] + 4


def test_llama_cpp_s_converter_writes_what_is_no_gguf_file():
    target, draft = ModelFiles("t", folder="/a t", beside="/here/t"), ModelFiles("d", folder="o/d", beside="/here/d")
    assert pasted(methods.find("draft"), {}, DraftSetup(3, target, draft))["llama.cpp"].paste.split("\n")[:4] == [
        said := "# it knows the tokenizers of published models, not that of the sample pair",
        "python llama.cpp/convert_hf_to_gguf.py '/a t' --outfile /here/t.gguf",
        said, "python llama.cpp/convert_hf_to_gguf.py --remote o/d --outfile /here/d.gguf",
    ]


def test_sglang_keeps_the_tree_and_counts_its_root():
    setup = DraftSetup(3, ModelFiles("t", folder="t"), ModelFiles("d", folder="d"))
    tree = {"shape": "tree", "budget": "paper", "total_nodes": 15, "top_k": 4}
    assert pasted(methods.find("draft"), tree, setup)["SGLang"].paste == (
        "# not tried here: SGLang needs a GPU\n"
        "python -m sglang.launch_server --model-path t --speculative-algorithm STANDALONE "
        "--speculative-draft-model-path d --speculative-num-steps 3 --speculative-eagle-topk 4 "
        "--speculative-num-draft-tokens 16")
    chain = pasted(methods.find("draft"), {"budget": "paper", "num_tokens": 5}, setup)["SGLang"].paste
    assert chain.endswith("--speculative-num-steps 5 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6")


def test_a_draft_model_of_other_tokens_goes_where_it_is_taken(sample_gguf):
    target, other = model_files(str(sample_gguf[0])), model_files("smollm2-draft")
    assert same_tokens(model_files(str(sample_gguf[1])), target) and not same_tokens(other, target)
    found = pasted(methods.find("draft"), {}, DraftSetup(3, target, other, same_tokens=False))
    assert not {"vLLM", "SGLang"} & set(found)
    assert "assistant_tokenizer=assistant_tokenizer" in found["transformers"].paste


def test_names_are_quoted_for_where_they_are_pasted():
    setup = DraftSetup(3, ModelFiles("t", gguf="/a b", folder="t"), ModelFiles("d", folder="a'b $(x)"))
    assert vllm(setup, model="a'b $(x)").paste == """vllm serve t --speculative-config '{"model": "a'"'"'b $(x)"}'"""
    assert llama_cpp(setup, "t", x_y="a b").paste == "llama-server --model '/a b' --spec-type t --x-y 'a b'"
    assert """from_pretrained("a'b $(x)", dtype='auto')""" in assisted(setup).paste
