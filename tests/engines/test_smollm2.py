"""A real model: read from its file as llama.cpp reads it, lossless under every engine that needs no more than it."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
import torch

from engines import Request, load
from engines.hub import gguf_file, gguf_folder
from engines.hub.model_source import locate
from engines.model.loading import load_tokenizer, read_model
from tests.conftest import SMOLLM2, add_datastores
from tests.tiers import some

ALONE = [("pld", {}), ("admg", {}), ("draft-verify", {"layers": "a3-28,m5-20"})]
PROMPT = (("user", "Write a Python function that adds two numbers, then one that multiplies two numbers."),)
QUESTION = (("user", "What is the capital of France? Tell me three facts about it."),)
pytestmark = pytest.mark.timeout(300)


def answer(runtime, engine="autoregressive", options=None, prompt=PROMPT, new=40, **kw):
    return list(runtime.run(Request(prompt, engine, options or {}, max_new_tokens=new, **kw)))[-1]


@functools.cache
def alone(runtime, **kw):
    return answer(runtime, **kw)


def test_it_answers_a_question(smollm2):
    assert "Paris" in alone(smollm2, prompt=QUESTION).text


@pytest.mark.parametrize("temperature, law", [
    (0.0, "exact"), *some([(0.8, "exact"), (0.0, "rejection")], lambda _: False)
])
@pytest.mark.parametrize("engine, options", some(ALONE, lambda lane: lane == ALONE[0]))
def test_every_engine_writes_what_the_model_writes_alone(smollm2, engine, options, temperature, law):
    wanted = alone(smollm2, temperature=temperature, seed=3, new=30)
    found = answer(smollm2, engine, options, temperature=temperature, law=law, seed=3, new=30)
    assert found.tokens == wanted.tokens


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine, options", [
    ("suffix", {}), ("recycling", {}), ("rest", {"n_min": 1}), ("dresd", {}), ("hybrid", {"n_min": 1}),
    ("pld", {"num_candidates": 4, "max_ngram": 5}),
])
def test_engines_with_datastores_and_trees_do_too(smollm2, engine, options):
    add_datastores("smollm2-texts", smollm2)
    for kw in ({"temperature": 0.0}, {"temperature": 0.8}, {"temperature": 0.0, "law": "rejection"}):
        wanted = alone(smollm2, new=60, **{"seed": 3, "temperature": kw["temperature"]})
        assert answer(smollm2, engine, options, new=60, seed=3, **kw).tokens == wanted.tokens, kw


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine, options", [
    ("eagle", {}), ("medusa", {}), ("rasd", {"drafter": "eagle"}), ("rasd", {"drafter": "eagle", "budget": "paper"}),
    ("hybrid", {"n_min": 1, "budget": "paper"}),
])
def test_engines_with_heads_do_too(engine, options):
    runtime = load(str(SMOLLM2), threads=2)
    add_datastores("smollm2-texts", runtime)
    for kw in ({"temperature": 0.0}, {"temperature": 0.8}):
        wanted = answer(runtime, new=60, seed=3, **kw)
        assert answer(runtime, engine, options, new=60, seed=3, **kw).tokens == wanted.tokens, kw


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@torch.no_grad()
@pytest.mark.parametrize("length", [2000, 6000])
def test_far_into_a_text_its_logits_are_those_of_transformers(smollm2, length):
    """Read in pieces and, at the end, token by token as an answer is."""
    exact = load(str(SMOLLM2), threads=2, arithmetic="float32").target
    text = "\n".join(path.read_text("utf-8") for path in sorted((Path(__file__).parents[2] / "docs").glob("*.md")))
    ids = smollm2.tokenizer(text, add_special_tokens=False).input_ids[:length]
    assert len(ids) == length
    plain = read_model(locate(str(SMOLLM2)), torch.float32, torch.device("cpu")).eval()
    wanted = plain(torch.tensor([ids]), logits_to_keep=4).logits[0]
    for first in range(0, length - 4, 500):
        chunk = ids[first : min(first + 500, length - 4)]
        exact.forward(chunk, list(range(-1, len(chunk) - 1)))
        exact.keep(list(range(len(chunk))))
    for row, token in zip(wanted, ids[-4:]):
        found = exact.forward([token], [-1])[-1]
        exact.keep([0])
        assert torch.allclose(found.log_softmax(-1), row.log_softmax(-1), atol=2e-3)


def test_admg_takes_the_preset_that_is_named_after_it(smollm2):
    started, *_ = smollm2.run(Request(PROMPT, "admg", max_new_tokens=2))
    assert started.options["preset"] == "smollm2"


def test_the_file_says_where_answers_end(smollm2):
    tokenizer = smollm2.tokenizer
    ends = gguf_folder.ends_of_answer(gguf_file.read(SMOLLM2))
    # the last one as by llama.cpp: a model that goes on to another file has ended its answer
    assert tokenizer.convert_ids_to_tokens(ends) == ["<|endoftext|>", "<|im_end|>", "<reponame>"]


def test_its_tokens_are_llama_cpp_s():
    if not SMOLLM2.is_file():
        pytest.skip("smollm2 is not on this machine: spec-tui model get smollm2 fetches it")
    from tests.sources.llama_cpp import LlamaCpp
    from tests.sources.test_gguf import HARD, SPACES

    tokenizer, oracle = load_tokenizer(str(SMOLLM2)), LlamaCpp(SMOLLM2)
    for text in (*HARD, *SPACES):
        assert tokenizer(text).input_ids == oracle.tokens(text), text
