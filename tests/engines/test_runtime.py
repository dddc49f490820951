"""The runtime: turns share a cache, requests are checked, failures are sentences."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count, pairwise
from threading import Thread

import numpy as np
import pytest
import torch

from engines import Answer, ModelUnavailable, Request, UsageProblem, load, measure
from engines.datastores.building.hidden_states import HiddenStates
from engines.folders import sample_model
from engines.heads.check_head import check
from engines.heads.hidden_state_cache import HiddenStateCache, Text
from engines.model import thread_governor
from engines.model.description import describe
from engines.model.loading import load_model, load_tokenizer, resolve_device, resolve_dtype, wrap
from engines.report.encoding import encode
from engines.report.events import Finished, Prefilled, Prefilling, Started
from engines.runtime import Runtime
from spec_tui.export.about import origin
from tests.conftest import ONE, TURN, make_llama, make_tokenizer
from tests.heads import make_head


def make_bloom(seed: int):
    """A tiny random model whose attention knows no positions but columns, so that it cannot branch."""
    from transformers import BloomConfig, BloomForCausalLM

    torch.manual_seed(seed)
    config = BloomConfig(
        vocab_size=260, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3, bos_token_id=None, eos_token_id=0,
        pad_token_id=0,
    )
    return BloomForCausalLM(config).eval()


def ask(runtime, *turns, **kw):
    return list(runtime.run(Request(tuple(turns), max_new_tokens=kw.pop("new", 30), **kw)))


def test_a_second_turn_reuses_the_first_ones_rows(sample):
    first = ("user", "Tell me a story about a dog.")
    *_, done = ask(sample, first, engine="draft")
    second = [first, ("assistant", done.text), ("user", "And then?")]
    warm = ask(sample, *second, engine="draft")
    assert warm[1].reused >= len(warm[0].prompt) // 2
    sample.forget()
    cold = ask(sample, *second, engine="draft")
    assert cold[1].reused == 0
    assert warm[-1] == cold[-1]


@pytest.mark.parametrize("engine", ["draft", "pld", "eagle"])
def test_a_conversation_goes_on_until_the_context_is_full_and_then_says_so(tiny, engine):
    turns, answers = [], 0
    for n in range(99):
        turns.append(("user", f"turn {n}"))
        try:
            *_, done = ask(tiny, *turns, engine=engine, new=24)
        except UsageProblem as error:
            assert f"the model's context holds {tiny.target.context_limit}" in error.message and error.hint
            break
        assert done == ask(tiny, *turns, engine="autoregressive", new=24)[-1]
        turns.append(("assistant", done.text))
        answers += 1
    assert answers > 2 and done.reason == "length" and len(done.tokens) < 24, "the last one was cut by the context"
    assert ask(tiny, ("user", "a new conversation"), engine=engine)[-1].tokens


def test_the_cache_survives_a_change_of_engine_and_a_cancel(sample):
    turn = ("user", "Count from one to ten.")
    polls = iter([False] * 3 + [True] * 100)
    events = list(sample.run(Request((turn,), engine="draft", max_new_tokens=60), lambda: next(polls)))
    assert events[-1].reason == "cancelled" and events[-1].tokens
    assert ask(sample, turn, engine="pld", new=60)[-1] == ask(sample, turn, engine="autoregressive", new=60)[-1]


def test_what_is_cached_and_read_again_is_said(tiny, monkeypatch):
    monkeypatch.setattr("engines.model.features.LEAST_RECENT", 1000)  # of all rows, as heads want it
    monkeypatch.setattr("engines.runtime.LEAST_RECENT", 0)
    question, said = ("user", "a question"), lambda events: [w for w in events[0].warnings if "are read again" in w]
    tiny.forget()
    first = ask(tiny, question, engine="pld")
    turns = question, ("assistant", first[-1].text), ("user", "and another")
    again = ask(tiny, *turns, engine="admg", new=4)
    (words,) = said(again)
    assert again[1].reused == 0 and int(words.split()[0]) >= len(first[0].prompt)
    assert "needs hidden states of them" in words
    kept = ask(tiny, *turns, ("assistant", again[-1].text), question, engine="admg", new=4)
    assert kept[1].reused > 0 and not said(kept), "what they were asked for stays"


def test_a_long_prompt_is_told_of_piece_by_piece_and_can_be_stopped_between_two(tiny, monkeypatch):
    monkeypatch.setattr("engines.model.causal_model.CHUNK", 7)
    request, told = Request((("user", "a long prompt " * 4),), engine="autoregressive", max_new_tokens=3), []
    tiny.forget()
    events = list(tiny.run(request, progress=told.append))
    length = tiny.prompt_length(request)
    assert [e.done for e in told] == list(range(0, length, 7)) and {e.total for e in told} == {length}
    assert told[0].seconds_left is None and all(e.seconds_left > 0 for e in told[1:])
    assert not any(isinstance(e, Prefilling) for e in events), "progress is no part of a run"
    tiny.forget()
    seen = list(tiny.run(request, lambda: len(told) > 3, progress=told.append))
    assert [type(e) for e in seen] == [Started, Finished] and seen[-1].reason == "cancelled"
    tiny.forget()
    monkeypatch.setattr("engines.model.causal_model.CHUNK", 1000)
    told.clear()
    assert list(tiny.run(request, progress=told.append))[-1].tokens == events[-1].tokens and not told
    monkeypatch.setattr("engines.model.causal_model.CHUNK", 7)
    tiny.forget()
    list(tiny.run(replace(request, engine="draft"), progress=told.append))
    assert [e.done for e in told if e.draft] == [e.done for e in told if not e.draft] == list(range(0, length, 7))
    assert next(e for e in told if e.draft).seconds_left is None, "its time begins when the target is done"


def test_loading_is_told_of_as_it_goes(saved):
    told = []
    load(str(saved), str(saved), threads=1, progress=told.append)
    shares = [event.done for event in told if event.done is not None]
    assert shares == sorted(shares) and shares[-1] == 1.0
    stages = [event.stage for event in told]
    for stage in ("loading the weights", "testing the model with drafts", "draft model: loading the weights"):
        assert stage in stages
    jumps = [b - a for a, b in pairwise(shares)]
    assert max(jumps) < 0.4, "the bar does not stand still for most of the loading"


def test_a_cache_folder_that_can_be_none_is_not_the_models_fault(saved, monkeypatch):
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", "~no-such-user-here/x")
    with pytest.raises(UsageProblem, match="SPEC_TUI_CACHE_DIR names no folder"):
        load(str(saved), threads=1)


def test_the_weights_are_counted_while_they_are_read(saved, monkeypatch):
    monkeypatch.setattr("engines.libraries.hf.perf_counter", count().__next__)  # a second passes at each look
    told = []
    load_model(str(saved), ONE, progress=told.append)
    assert len({event.done for event in told if event.stage == "loading the weights"}) > 5


def test_models_are_loaded_in_several_threads_at_once(sample):
    def load_one():
        loaded.append(load_model(sample.ready.model, ONE).fingerprint)

    loaded, threads = [], [Thread(target=load_one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load_one()
    assert loaded == [sample.target.fingerprint] * 4


@pytest.mark.parametrize("end", ["finished", "closed", "cancelled", "failed"])
def test_a_run_gives_back_the_threads_it_gave_up_and_begins_with_its_own(tiny, monkeypatch, end):
    monkeypatch.setattr(thread_governor, "_FORWARDS", 1)
    monkeypatch.setattr(thread_governor, "_SLOW", 0.0)
    monkeypatch.setattr(thread_governor, "_LASTING", 0.0)
    monkeypatch.setattr(thread_governor, "_GAIN", 0.0)  # however long the forwards take, one thread is kept
    runtime, before, over = Runtime.measured(tiny.target, tiny.tokenizer), torch.get_num_threads(), [False]
    runtime.ready = replace(runtime.ready, threads=2)
    try:
        torch.set_num_threads(3)  # another runtime's
        run = runtime.run(Request((("user", "x"),), engine="autoregressive", max_new_tokens=60), lambda: over[0])
        assert isinstance(next(run), Started) and isinstance(next(run), Prefilled)
        assert torch.get_num_threads() == 2
        first, second = next(run), next(run)
        assert first.threads is None and second.threads == 1
        next(event for event in run if getattr(event, "threads", None) == 1 == torch.get_num_threads())
        if end == "failed":
            monkeypatch.setattr(runtime.target.compute, "run", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                list(run)
        elif end == "closed":
            run.close()
        else:
            over[0] = end == "cancelled"
            assert list(run)[-1].reason == ("cancelled" if over[0] else "length")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
        runtime.forget()


def test_started_says_everything_needed_to_repeat_the_run(tiny):
    events = ask(tiny, ("user", "x"), engine="pld", options={"num_tokens": "4"}, temperature=0.5, seed=9)
    started = events[0]
    assert isinstance(started, Started)
    assert started.conversation == (("user", "x"),) and started.max_new_tokens == 30
    assert started.options == {
        "budget": "auto", "max_ngram": 3, "min_ngram": 1, "num_tokens": 4, "num_candidates": 1, "match": "latest",
    }
    assert (started.engine, started.law, started.seed, started.lossless) == ("pld", "exact", 9, True)
    assert started.prompt_pieces[0] == "<|user|>"
    assert started.versions["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert isinstance(events[1], Prefilled) and isinstance(events[-1], Finished)


def test_more_threads_than_processors_are_refused_before_anything_is_loaded():
    with pytest.raises(UsageProblem, match="more than the"):
        load("/nowhere", threads=100_000)


def test_the_default_engine_is_the_hybrid_where_a_model_or_a_head_drafts(tiny):
    assert ask(tiny, ("user", "x"))[0].engine == "hybrid"
    assert ask(Runtime.measured(tiny.target, tiny.tokenizer), ("user", "x"))[0].engine == "pld"


@pytest.mark.parametrize(
    ("kw", "words"),
    [
        (
            {"engine": "nope"},
            "autoregressive, pld, suffix, recycling, rest, dresd, draft, eagle, medusa, rasd, hybrid, admg, "
            "draft-verify",
        ),
        ({"engine": "pld", "options": {"nope": 1}}, "max_ngram"),
        ({"engine": "pld", "options": {"num_tokens": 0}}, "1..256"),
        ({"engine": "pld", "options": {"num_tokens": "many"}}, "1..256"),
        ({"engine": "draft", "options": {"shape": "ring"}}, "chain | tree"),
        ({"engine": "draft", "options": {"confidence": "nan"}}, "0..1"),
        ({"temperature": -1}, "0, or at least"),
        ({"temperature": 1e-40}, "0, or at least"),
        ({"temperature": float("nan")}, "0, or at least"),
        ({"seed": 2**63}, str(2**63 - 1)),
        ({"top_p": 0}, "above 0"),
        ({"law": "murphy"}, "exact, rejection"),
        ({"new": 0}, "at least 1"),
    ],
)
def test_bad_requests_name_what_is_allowed(tiny, kw, words):
    with pytest.raises(UsageProblem) as caught:
        ask(tiny, ("user", "x"), **kw)
    assert words in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("wrong, said", [
    ({"conversation": [{"role": "user", "content": "x"}]}, "pairs (role, content)"),
    ({"conversation": "hello"}, "pairs (role, content)"),
    ({"conversation": ("user", "hello")}, "pairs (role, content)"),
    ({"conversation": (("bogus", "hello"),)}, "system, user, assistant"),
    ({"conversation": (("user", None),)}, "pairs (role, content)"), ({"conversation": None}, "pairs (role, content)"),
    ({"datastores": None}, "datastores is not made of strings"),
    ({"max_new_tokens": 3.5}, "max_new_tokens 3.5 is not a whole number"), ({"seed": True}, "not a whole number"),
    ({"temperature": "hot"}, "'hot' is not a number"), ({"temperature": None}, "None is not a number"),
    ({"options": None}, "not a mapping"), ({"continued": ("a",)}, "continued is not made of whole numbers"),
    ({"datastores": "sample"}, "datastores is not made of strings"), ({"raw": "no"}, "not a boolean"),
])
def test_values_of_other_types_are_refused_in_a_sentence(tiny, wrong, said):
    asked = {"conversation": (("user", "x"),)} | wrong
    with pytest.raises(UsageProblem) as caught:
        list(tiny.run(Request(**asked)))
    assert said in f"{caught.value.message} {caught.value.hint}"
    with pytest.raises(UsageProblem, match="a list is not an answer"):
        tiny.audit([])


def test_numbers_of_numpy_are_as_good_as_pythons(tiny):
    asked = {"seed": np.int64(4), "max_new_tokens": np.int32(6), "temperature": np.float64(0.8), "top_k": np.int32(4),
             "top_p": np.float32(0.5), "continued": [np.int64(5), np.int64(6)]}
    events = [*tiny.run(Request((("user", "x"),), **asked))]
    plain = {**asked, "seed": 4, "max_new_tokens": 6, "temperature": 0.8, "top_k": 4, "continued": (5, 6)}
    assert events[-1].tokens == [*tiny.run(Request((("user", "x"),), **plain))][-1].tokens
    assert all(map(encode, events))


@pytest.mark.parametrize("asked", ["Hello", None, {"conversation": "Hello"}])
def test_what_is_no_request_is_refused_in_a_sentence(tiny, asked):
    with pytest.raises(UsageProblem, match="is not a request"):
        list(tiny.run(asked))


def test_what_the_callers_code_raises_is_not_the_models_failure(tiny):
    """Neither in what it gives to be called, nor where it throws into a run: RuntimeErrors are what models raise."""
    request, mine = Request((("user", "x" * 200),), max_new_tokens=4), RuntimeError("mine")

    def fails(*_):
        raise mine

    def thrown() -> None:
        run = tiny.run(request)
        next(run)
        run.throw(mine)

    answer = Answer.from_events([*tiny.run(request)])
    for call in (thrown, lambda: list(tiny.run(request, fails)), lambda: tiny.audit(answer, fails)):
        tiny.forget()
        with pytest.raises(RuntimeError, match=r"^mine$"):
            call()
    assert Answer.from_events([*tiny.run(request)]) == answer and tiny.audit(answer).verdict == "identical"


def test_a_process_that_was_forked_after_a_load_is_told_so(tiny):
    """Its threads are gone: it hung without a word, or blamed the download."""
    here, there = multiprocessing.Pipe()

    def child() -> None:
        for call in (load, lambda: list(tiny.run(Request((("user", "x"),))))):
            with pytest.raises(UsageProblem) as refused:
                call()
            there.send(refused.value.message)

    forked = multiprocessing.get_context("fork").Process(target=child)
    forked.start()
    try:
        for _ in range(2):
            assert here.poll(30) and "forked after a model was loaded" in here.recv()
    finally:
        forked.kill()
        forked.join()


@pytest.mark.parametrize("token", [-1, 10**9])
def test_an_answer_of_other_tokens_cannot_be_continued(tiny, token):
    with pytest.raises(UsageProblem, match=f"token {token} to continue from is beyond"):
        list(tiny.run(Request((("user", "x"),), continued=(5, token))))


@pytest.mark.parametrize("wrong, said", [
    ({"threads": 1.5}, "threads 1.5 is not a whole number"), ({"threads": True}, "threads True is not a whole number"),
    ({"head": 4}, "head 4 is not a string"), ({"model": 7}, "model 7 is not a string"),
    ({"threads": 0}, "0 threads compute nothing"),
    ({"native": "no"}, "native 'no' is not a boolean"), ({"quantize": 4}, "quantize 4 is not a string"),
])
def test_loading_refuses_values_of_other_types_in_a_sentence(wrong, said):
    with pytest.raises(UsageProblem, match=said):
        load(**wrong)


def test_a_conversation_that_ends_with_an_answer_is_refused(tiny):
    with pytest.raises(UsageProblem, match="does not end with the user's turn"):
        ask(tiny, ("user", "Hello"), ("assistant", "Hi"))


@pytest.mark.parametrize("turns", [(), (("user", "  \n"),), (("system", "be kind"),)])
def test_an_empty_prompt_is_refused(tiny, turns):
    with pytest.raises(UsageProblem, match="empty"):
        ask(tiny, *turns)


def test_out_of_context_says_how_long_it_is_and_what_fits(tiny):
    with pytest.raises(UsageProblem) as caught:
        ask(tiny, ("user", "x" * 300))
    assert "256" in caught.value.message and "at most 255" in caught.value.hint


def test_a_full_conversation_is_told_from_a_long_prompt(tiny):
    turns = [("user", "x" * 100), ("assistant", "y" * 150), ("user", "and?")]
    with pytest.raises(UsageProblem, match="conversation with this prompt") as caught:
        ask(tiny, *turns)
    assert "new conversation" in caught.value.hint


def test_a_new_conversation_is_not_offered_where_it_cannot_help(tiny):
    for before in ((), (("system", "be brief"),), (("user", "a"), ("assistant", "b"))):
        with pytest.raises(UsageProblem, match=r"^the prompt has") as caught:
            ask(tiny, *before, ("user", "x" * 2000))
        assert "shorten it to at most 255 tokens" in caught.value.hint and "/new" not in caught.value.hint


def test_a_long_system_prompt_is_named_as_what_to_shorten(tiny):
    with pytest.raises(UsageProblem, match="the prompt with the system prompt has") as caught:
        ask(tiny, ("system", "s" * 2000), ("user", "hi"))
    assert "shorten the system prompt" in caught.value.hint and "/system" in caught.value.hint


def test_an_answer_ends_where_the_context_ends(tiny):
    for engine in ("autoregressive", "pld", "draft"):
        events = ask(tiny, ("user", "x" * 200), engine=engine, new=1000)
        started, finished = events[0], events[-1]
        assert "leaves room" in started.warnings[0]
        assert finished.reason in ("length", "stop")
        assert len(started.prompt) + len(finished.tokens) <= 256
        if finished.reason == "length":
            assert len(started.prompt) + len(finished.tokens) == 256


def test_a_draft_with_a_shorter_context_falls_silent_instead_of_failing():
    target = wrap(make_llama(1, context=200), "t")
    runtime = Runtime.measured(target, make_tokenizer(), wrap(make_llama(2, context=60), "d"))
    for options in ({}, {"shape": "tree"}):
        long = ask(runtime, ("user", "x" * 30), engine="draft", options=options, new=120)
        assert long[-1] == ask(runtime, ("user", "x" * 30), engine="autoregressive", new=120)[-1]
        longer_prompt = ask(runtime, ("user", "x" * 100), engine="draft", options=options, new=20)
        assert longer_prompt[-1].tokens


def test_a_draft_that_lacks_rows_for_a_token_falls_silent():
    """A hot target emits padding that the draft model has no embedding for."""
    runtime = Runtime.measured(wrap(make_llama(1, vocab_size=300), "t"), make_tokenizer(), wrap(make_llama(2), "d"))
    beyond = 0
    for law in ("exact", "rejection"):
        for shape in ("chain", "tree"):
            kw = {"law": law, "temperature": 3.0, "seed": 1, "new": 60}
            events = ask(runtime, ("user", "abc"), engine="draft", options={"shape": shape}, **kw)
            beyond += max(events[-1].tokens) >= 260
            if law == "exact":
                assert events[-1] == ask(runtime, ("user", "abc"), engine="autoregressive", **kw)[-1]
    assert beyond


def test_a_tokenizer_larger_than_the_model_is_a_sentence():
    runtime = Runtime.measured(wrap(make_llama(1, vocab_size=64), "t"), make_tokenizer())
    with pytest.raises(UsageProblem, match="beyond the model's vocabulary"):
        ask(runtime, ("user", "ÿ"))


@pytest.mark.parametrize("shape", ["chain", "tree"])
def test_models_that_cannot_branch_get_chains_and_say_so(shape):
    for make_target, make_draft in ((make_llama, make_bloom), (make_bloom, make_llama), (make_bloom, make_bloom)):
        target, draft = wrap(make_target(1), "t"), wrap(make_draft(2), "d")
        runtime = Runtime.measured(target, make_tokenizer(), draft)
        assert any("cannot branch" in w for w in runtime.ready.warnings)
        events = ask(runtime, ("user", "x" * 40), engine="draft", options={"shape": shape}, new=50)
        assert events[-1] == ask(runtime, ("user", "x" * 40), engine="autoregressive", new=50)[-1]
        for event in events[2:-1]:
            assert list(event.draft.parents) == list(range(-1, len(event.draft.parents) - 1))


def test_a_draft_with_padded_embeddings_fits():
    target = wrap(make_llama(1, vocab_size=260), "t")
    for width in (272, 256):
        runtime = Runtime.measured(target, make_tokenizer(), wrap(make_llama(1, vocab_size=width), "d"))
        for law in ("exact", "rejection"):
            for shape in ("chain", "tree"):
                events = ask(runtime, ("user", "abc"), engine="draft", options={"shape": shape}, law=law, new=40)
                assert events[-1] == ask(runtime, ("user", "abc"), engine="autoregressive", new=40)[-1]


def test_without_a_chat_template_the_prompt_is_raw_and_says_so(tiny):
    runtime = Runtime.measured(tiny.target, make_tokenizer(template=False))
    started = ask(runtime, ("user", "ab"))[0]
    assert started.prompt_pieces == ("a", "b")
    assert "no chat template" in started.warnings[0]
    assert started.conversation == (("raw", "ab"),)
    assert ask(tiny, ("user", "ab"), raw=True)[0].prompt_pieces == ("a", "b")
    assert ask(tiny, ("user", "ab"), raw=True)[0].conversation == (("raw", "ab"),)
    told = dict(origin(ask(tiny, ("system", "be brief"), ("user", "ab"), raw=True)[0]))
    assert (told["system"], told["prompt"]) == ("be brief", "without the chat template") and "raw" not in told


def test_a_template_that_refuses_is_a_sentence(tiny):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(UsageProblem, match="no system role"):
        ask(Runtime.measured(tiny.target, tokenizer), ("user", "x"))


def test_the_draft_engine_without_a_draft_model_says_what_to_give(tiny):
    with pytest.raises(UsageProblem) as caught:
        ask(Runtime.measured(tiny.target, tiny.tokenizer), ("user", "x"), engine="draft")
    assert "--draft-model" in caught.value.hint


@pytest.fixture
def folder(tmp_path):
    """A copy of the shipped draft model to break."""
    return shutil.copytree(sample_model("draft"), tmp_path / "model")


def edit(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def failure(model) -> str:
    with pytest.raises(ModelUnavailable) as caught:
        load(str(model))
    assert "Traceback" not in caught.value.message and caught.value.hint
    return caught.value.message


def test_a_missing_folder(tmp_path):
    assert "no model folder" in failure(tmp_path / "nope")


def test_a_folder_without_a_model(tmp_path):
    assert "config.json" in failure(tmp_path)


def test_a_file_instead_of_a_folder(folder):
    assert "is a settings file, not a model" in failure(folder / "config.json")


def test_not_a_causal_model(folder):
    edit(folder, "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"], is_encoder_decoder=True)
    assert "not a causal language model" in failure(folder)


def test_a_type_that_transformers_does_not_know_is_named(folder):
    edit(folder, "config.json", model_type="zorkmodel")
    said = failure(folder)
    assert "is of the type zorkmodel, which transformers 5." in said and "does not know" in said


def test_a_sentencepiece_tokenizer_without_its_library_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr("engines.libraries.versions.installed", lambda package: None)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>\x15\x00\x00\x00\x00\x18\x02")
    with pytest.raises(ModelUnavailable) as caught:
        load_tokenizer(str(folder))
    assert "is a SentencePiece file" in caught.value.message and caught.value.hint == "pip install sentencepiece"
    described = describe(str(folder))
    assert (described.problem, described.hint) == (caught.value.message, caught.value.hint)


def test_an_encoder_is_no_language_model():
    from transformers import BertConfig, BertLMHeadModel

    config = BertConfig(vocab_size=260, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(ModelUnavailable, match="encoder"):
        wrap(BertLMHeadModel(config).to(torch.float32), "bert")


def test_missing_weights_are_not_made_up(folder):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    message = failure(folder)
    assert "lacks 1 of its weights" in message and "model.layers.1.mlp.up_proj.weight" in message


@pytest.mark.parametrize("key, value, said", [
    ("hidden_size", 160, "embed_tokens.weight is 8192 x 128, the configuration makes it 8192 x 160"),
    ("vocab_size", 300, "embed_tokens.weight is 8192 x 128, the configuration makes it 300 x 128"),
    ("num_key_value_heads", 1, "k_proj.weight is 128 x 128, the configuration makes it 64 x 128"),
    ("intermediate_size", 96, "down_proj.weight is 128 x 352, the configuration makes it 128 x 96"),
    ("num_attention_heads", 0, "ZeroDivisionError: "),
    ("rope_parameters", {"rope_type": "evil", "rope_theta": 1e4}, "KeyError: 'evil'"),
])  # fmt: skip
def test_a_configuration_that_does_not_fit_the_weights(folder, key, value, said):
    edit(folder, "config.json", **{key: value})
    assert said in failure(folder)


def test_a_long_rope_is_used_up_to_its_switch():
    from transformers import Phi3Config, Phi3ForCausalLM

    half = 4
    config = Phi3Config(
        vocab_size=260, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=4,
        max_position_embeddings=256, original_max_position_embeddings=64, pad_token_id=0, eos_token_id=0,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * half, "long_factor": [4.0] * half,
            "original_max_position_embeddings": 64,
        },
    )
    runtime = Runtime.measured(wrap(Phi3ForCausalLM(config), "phi"), make_tokenizer())
    assert runtime.ready.context_limit == 64 and "longrope" in runtime.ready.warnings[0]
    for engine in ("autoregressive", "pld"):
        assert len(ask(runtime, ("user", "x" * 20), engine=engine, new=100)[0].prompt) < 64


def test_no_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "safetensors" in failure(folder)


def test_pickled_weights_are_not_touched(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "safetensors" in failure(folder)


def test_truncated_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    assert str(folder) in failure(folder)


def test_an_unreadable_configuration(folder):
    (folder / "config.json").write_text("{not json")
    assert "cannot be read" in failure(folder)


def test_a_hub_id_that_is_not_here_when_offline():
    message = failure("someone/some-model")
    assert "someone/some-model" in message and "local cache" in message


def test_a_hub_that_does_not_answer_is_said_quickly(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    clock = time.monotonic()
    assert "could not be reached" in failure("someone/some-model")
    assert time.monotonic() - clock < 10


def test_a_nonsense_id():
    assert "neither" in failure("a b c")


def test_a_draft_of_another_vocabulary_is_translated(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"][0]["content"] = "<|other|>"
    tokenizer["model"]["vocab"]["<|other|>"] = tokenizer["model"]["vocab"].pop("<|endoftext|>")
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    other = load(draft_model=str(folder))
    assert other.translation.share == 8191 / 8192 and str(folder) in other.ready.warnings[0]
    drafted, alone = (list(other.run(Request(TURN, name, max_new_tokens=400))) for name in ("draft", "autoregressive"))
    assert drafted[-1] == alone[-1] and drafted[-1].reason == "stop" and measure(drafted).accepted
    quiet = load(str(folder))
    assert quiet.draft is None and quiet.ready.warnings[0].startswith("no draft model here fits")
    assert quiet.ready.no_draft_model == quiet.ready.warnings[0] and not other.ready.no_draft_model
    given = quiet.with_draft_model("sample-draft")
    assert given.target is quiet.target, "it is not read again"
    (said,) = given.ready.warnings
    assert given.ready.no_draft_model == "" and "the text is translated for it" in said
    with pytest.raises(ModelUnavailable):
        given.with_draft_model(str(folder / "nowhere"))
    with pytest.raises(UsageProblem, match="a draft model cannot be 5"):
        given.with_draft_model(5)
    drafted, alone = (list(given.run(Request(TURN, name, max_new_tokens=12))) for name in ("draft", "autoregressive"))
    assert drafted[-1] == alone[-1] and measure(drafted).accepted


def test_devices_and_dtypes():
    assert resolve_dtype("auto", torch.device("cpu")) == torch.float32
    assert resolve_dtype("bf16", torch.device("cpu")) == torch.bfloat16
    with pytest.raises(UsageProblem, match="no dtype"):
        resolve_dtype("int3", torch.device("cpu"))
    with pytest.raises(UsageProblem, match="does not work here"):
        resolve_device("quantum")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_runs(dtype):
    runtime = load(dtype=dtype)
    assert runtime.ready.dtype == f"float32, {dtype} weights"
    assert ask(runtime, ("user", "hello"), engine="draft")[-1].tokens


def test_ready_describes_the_models(sample):
    ready = sample.ready
    assert ready.parameters == load_plain_size(ready.model) and ready.dtype == "float32" and ready.chat_template
    assert ready.draft_parameters < ready.parameters and not ready.warnings


def load_plain_size(name) -> int:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(name).num_parameters()


def test_loading_reports_progress():
    stages = []
    load(progress=stages.append)
    assert [s.done for s in stages] == sorted(s.done for s in stages) and stages[-1].done == 1.0


def test_a_model_that_breaks_mid_run_is_a_sentence_and_the_next_run_works(sample, monkeypatch):
    from engines.errors import RunFailed

    forward = sample.target.forward

    def breaks(tokens, parents):
        raise RuntimeError("out of luck\nlong trace")

    monkeypatch.setattr(sample.target, "forward", breaks)
    with pytest.raises(RunFailed, match="out of luck"):
        ask(sample, ("user", "hello"))
    monkeypatch.setattr(sample.target, "forward", forward)
    assert ask(sample, ("user", "hello"))[-1].text


def test_one_runtime_does_one_run_at_a_time(sample, tmp_path):
    def run(text: str):
        return sample.run(Request((("user", text),), max_new_tokens=12))

    alone = [event.text for event in run("hello") if hasattr(event, "text")]
    first, second = run("hello"), run("another text")
    begun = [next(first), next(first)]
    with pytest.raises(UsageProblem, match="a run cannot begin while the same model is in use"):
        next(second)
    refused = []

    def other_thread():
        try:
            list(run("of another thread"))
        except UsageProblem as error:
            refused.append(error.message)

    thread = Thread(target=other_thread)
    thread.start()
    thread.join()
    assert len(refused) == 1
    with pytest.raises(UsageProblem, match="a measurement"):
        sample.measure_price()
    with pytest.raises(UsageProblem, match="emptying the caches"):
        sample.forget()
    text = Text((1, 2, 3), 1, True)
    for reads in (
        lambda: HiddenStates(sample.target, sample.identity)([np.array(text.tokens)]),
        lambda: HiddenStateCache(tmp_path, sample.target, (1,), [text]).fill(lambda *_: None),
        lambda: check(make_head(sample.target), sample.target, [text]),
    ):
        with pytest.raises(UsageProblem, match="while the same model is in use"):
            reads()
    with pytest.raises(UsageProblem, match="a run cannot begin"):
        next(Runtime(sample.target, sample.tokenizer, sample.prices).run(Request((("user", "the same model"),))))
    assert [event.text for event in [*begun, *first] if hasattr(event, "text")] == alone, "the first is as ever"
    third = run("and one that is left")
    next(third)
    sample.stop()
    assert not [*third]
    fourth = run("hello")
    assert next(event for event in fourth if isinstance(event, Finished)), "after its last event it is over"
    assert [event.text for event in run("hello") if hasattr(event, "text")] == alone


def test_ctrl_c_while_torch_is_imported_leaves_a_process_that_can_load():
    """What torch had begun to import was half there for ever."""
    script = """
import signal, sys
from engines import load

class CtrlC:
    def find_spec(self, name, *_):
        if name == "torch.nn":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
try:
    load()
except KeyboardInterrupt:
    print(load().ready.model)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
