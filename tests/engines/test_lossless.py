"""Losslessness on real forwards: every engine gives the autoregressive tokens, greedy equals transformers."""

from __future__ import annotations

import functools

import pytest
import torch

from engines import Request, measure, specs
from engines.core.tree import depths
from engines.cost.curve import CostCurve
from engines.errors import UsageProblem
from engines.report.events import Finished, Round
from spec_tui.learn.showcase_prompts import SHOWCASES
from tests.conftest import ONE
from tests.tiers import first_of_each, some

PICKED = {  # of methods that have other ways to draft than by their defaults and with published sizes, or need some
    "pld": [{}, {"num_candidates": 4, "max_ngram": 5}],
    "suffix": [{}, {"budget": "paper"}, {"budget": "paper", "shape": "chain", "history": 0, "factor": 3}],
    "rest": [
        {"n_min": 1}, {"budget": "paper", "n_min": 1, "samples": 7}, {"n_min": 1, "select": "random", "c": 9}],
    "dresd": [{}, {"budget": "paper", "drafts": 3, "length": 20}],
    "draft": [
        {}, {"num_tokens": 9, "confidence": 0.0}, {"shape": "tree"}, {"shape": "tree", "draw": "independent"},
        {"shape": "tree", "draw": "distinct"}, {"shape": "tree", "depth": 3, "top_k": 8, "total_nodes": 40}],
    "eagle": [
        {}, {"budget": "paper"}, {"budget": "paper", "shape": "tree"}, {"shape": "tree", "draw": "independent"},
        {"shape": "tree", "draw": "distinct"}],
    "rasd": [
        {}, {"drafter": "eagle"}, {"budget": "paper", "retrieval": "pld"},
        {"budget": "paper", "prune": False, "fuse": False}],
    "hybrid": [{"n_min": 1}, {"budget": "paper"}, {"budget": "paper", "threshold": 64}],
    "admg": [{}, {"alpha": 0.5, "m": 2, "n": 1, "exit_start": 0.0}],
    "draft-verify": [{"layers": "a2,m3"}, {"layers": "a1-2,m3", "num_tokens": 4}],
}


def variants() -> list[tuple[str, dict]]:
    """All methods that draft, with options."""
    paper = {spec.id: [{"budget": "paper"}] * any(o.name == "budget" for o in spec.options) for spec in specs()}
    return [(spec.id, options) for spec in specs() if not spec.baseline
            for options in PICKED.get(spec.id, [{}, *paper[spec.id], *spec.variants])]


VARIANTS = variants()
IDS = [f"{engine}-{'-'.join(map(str, options.values()))}".rstrip("-") for engine, options in VARIANTS]
TURNS = {
    "copy": (("user", "Repeat: the cat sat on the mat, the cat sat on the hat."),),
    "code": (("user", "Write a Python function that adds two numbers."),),
}


@pytest.fixture(autouse=True)
def drafting_pays(request, monkeypatch):
    """No clock decides whether anything is drafted."""
    for name in {"tiny", "sample"} & set(request.fixturenames):
        runtime = request.getfixturevalue(name)
        cheap = runtime.prices._replace(target=CostCurve(((1, 1.0), (64, 1.5))))
        monkeypatch.setattr(runtime, "prices", cheap)


def run(runtime, engine, options=None, prompt=TURNS["copy"], new=40, **kw) -> tuple[Finished, object]:
    runtime.forget_acceptance()  # else what earlier tests lost may make a method rest all through
    events = list(runtime.run(Request(prompt, engine, options or {}, max_new_tokens=new, **kw)))
    return events[-1], measure(events)


@functools.cache
def alone(runtime, **kw) -> Finished:
    """What the target writes without drafts, once for all engines."""
    return run(runtime, "autoregressive", **kw)[0]


@pytest.mark.parametrize("seed", some([0, 1, 2], lambda seed: seed == 0))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("engine", "options"), VARIANTS, ids=IDS)
def test_tiny_models(tiny, engine, options, temperature, seed):
    baseline = alone(tiny, new=70, temperature=temperature, seed=seed)
    text, metrics = run(tiny, engine, options, new=70, temperature=temperature, seed=seed)
    assert text == baseline
    assert metrics.drafted > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_the_shipped_pair(sample, engine, options, temperature):
    prompt = TURNS["code" if temperature else "copy"]
    baseline = alone(sample, prompt=prompt, temperature=temperature, seed=1)
    text, metrics = run(sample, engine, options, prompt=prompt, temperature=temperature, seed=1)
    assert text == baseline
    assert metrics.drafted > 0


def test_seeds_and_filters_change_the_sampled_text_and_engines_do_not(sample):
    texts = set()
    for kw in ({"seed": 1}, {"seed": 2}, {"seed": 1, "top_p": 0.6}, {"seed": 1, "top_k": 3}):
        kw |= {"prompt": TURNS["code"], "temperature": 1.2}
        results = {run(sample, engine, **kw)[0].tokens for engine in ("autoregressive", "draft")}
        assert len(results) == 1
        texts |= results
    assert len(texts) > 2


@pytest.mark.parametrize("name", TURNS)
def test_greedy_is_what_transformers_generates(sample, name):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(sample.ready.model, dtype=torch.float32)
    inputs = sample.tokenizer.apply_chat_template(
        [{"role": r, "content": c} for r, c in TURNS[name]], add_generation_prompt=True, return_tensors="pt",
        return_dict=True,
    )
    out = model.generate(**inputs, do_sample=False, max_new_tokens=60)
    expected = tuple(out[0, inputs["input_ids"].shape[1] :].tolist())
    for engine in ("autoregressive", "pld", "draft"):
        assert run(sample, engine, prompt=TURNS[name], new=60)[0].tokens == expected


def test_greedy_is_what_transformers_generates_on_tiny_models(tiny):
    from tests.conftest import make_llama

    plain = make_llama(1, layers=3)
    ids = tiny.tokenizer.apply_chat_template(
        [{"role": "user", "content": "abc"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    out = plain.generate(**ids, do_sample=False, max_new_tokens=80)
    expected = tuple(out[0, ids["input_ids"].shape[1] :].tolist())
    for engine in ("autoregressive", "pld", "draft"):
        assert run(tiny, engine, prompt=(("user", "abc"),), new=80)[0].tokens == expected


@pytest.mark.parametrize("law", [{}, {"temperature": 0.8}, {"law": "rejection"}], ids=str)
@pytest.mark.parametrize(("engine", "options"), [
    ("eagle", {}), ("eagle", {"shape": "tree", "budget": "paper"}), ("medusa", {"budget": "paper"}),
    ("rasd", {"drafter": "eagle", "retrieval": "pld"}),
], ids=["chain", "tree", "medusa", "rasd"])
def test_heads_after_further_turns_and_changed_ones(tiny, engine, options, law):
    """What a head keeps of earlier turns is cut where the next text differs."""
    first = TURNS["copy"]
    second = (*first, ("assistant", alone(tiny, **law).text), ("user", "And the hat?"))
    changed = (("user", "Repeat: the cat sat on the hat."), *second[1:])
    for prompt in (first, second, changed, first):
        text, metrics = run(tiny, engine, options, prompt=prompt, **law)
        assert text == alone(tiny, prompt=prompt, **law)
        assert metrics.drafted > 0


@pytest.mark.parametrize("law", ["rejection", "block"])
@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_drawing_laws_at_temperature_zero_are_greedy(tiny, engine, options, law):
    assert run(tiny, engine, options, new=80, law=law)[0] == alone(tiny, new=80)


def test_the_block_law_refuses_what_draws_no_chain(tiny):
    """Above temperature 0. The baseline, and whoever draws a chain now and then, run."""
    kw = {"law": "block", "temperature": 0.9, "new": 12}
    for engine, options in (("pld", {}), ("draft", {"shape": "tree"}), ("medusa", {}), ("hybrid", {"model": False})):
        with pytest.raises(UsageProblem, match="block law judges chains that were drawn") as refused:
            run(tiny, engine, options, **kw)
        assert engine in refused.value.message and "shape=chain" in refused.value.hint
    for engine, options in (("autoregressive", {}), ("draft", {}), ("eagle", {}), ("hybrid", {}), ("admg", {})):
        assert run(tiny, engine, options, **kw)[0]


@pytest.mark.parametrize(("engine", "options"), first_of_each(VARIANTS, IDS))
def test_rejection_can_be_repeated(tiny, engine, options):
    kw = {"law": "rejection", "temperature": 0.9, "new": 40}
    first, again, other = (run(tiny, engine, options, seed=seed, **kw)[0] for seed in (5, 5, 6))
    assert first == again != other


def test_a_draft_identical_to_the_target_is_always_accepted(sample):
    from engines.model.loading import load_model
    from engines.runtime import Runtime

    twin = load_model(sample.ready.model, ONE)
    runtime = Runtime(sample.target, sample.tokenizer, sample.prices, draft=twin)
    for kw in ({}, {"temperature": 0.8}, {"temperature": 0.8, "law": "rejection"},
               {"temperature": 0.8, "law": "block"}):
        request = Request(TURNS["code"], "draft", {"confidence": 0.0}, max_new_tokens=60, **kw)
        rounds = [e for e in runtime.run(request) if isinstance(e, Round)]
        assert all(len(r.path) == len(r.draft.tokens) for r in rounds[:-1]), kw  # the last is cut at the end token


@pytest.mark.parametrize("engine", ["pld", "suffix", "hybrid", "rest", "dresd", "recycling", "rasd", "medusa"])
def test_a_budget_counts_only_tokens_that_can_be_written(sample, engine):
    """Not those behind the end of what is copied, nor those beyond the length of the answer."""
    copying = next(s.prompt for s in SHOWCASES if s.kind == "copying")
    seen = 0
    for most in (12, 60):
        events = sample.run(Request((("user", copying),), engine, max_new_tokens=most, keeps=False))
        rounds = [event for event in events if isinstance(event, Round)]
        seen += sum(bool(e.budget) for e in rounds)
        assert all(e.budget.kept == len(e.draft.tokens) for e in rounds if e.budget)
        assert all(e.budget.expected <= 1 + max(depths(e.draft.parents), default=0) for e in rounds if e.budget)
    assert seen
