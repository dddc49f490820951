"""A real model: read from its file as llama.cpp reads it, lossless under every engine that needs no more than it."""

from __future__ import annotations

import functools

import pytest

from engines import Request
from engines.hub import gguf_file, gguf_folder
from engines.model.loading import load_tokenizer
from tests.conftest import SMOLLM2
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
