"""Any decoder-only family: trees with windows, chains, or a refusal with its reason, whatever the family's name."""

from __future__ import annotations

import random
from functools import cache, partial

import numpy as np
import pytest
import torch

from engines import Request, measure
from engines.cost.curve import CostCurve
from engines.errors import ModelUnavailable
from engines.model import masks, selftest, tuning
from engines.model.causal_model import CausalModel
from engines.model.forward import GenericForward
from engines.model.load_options import LoadOptions
from engines.model.loading import wrap
from engines.report.events import Prefilled, Round
from engines.runtime import Prices, Runtime
from tests.conftest import ONE, make_tokenizer
from tests.engines.families import CHAINS, NAMED, REFUSED, TREES, WINDOW, as_on_a_gpu, make
from tests.tiers import FAMILIES, families, some

PROMPT = [(7 * i + i * i) % 250 + 4 for i in range(3 * WINDOW)]
ENGINES = [
    ("pld", {"num_candidates": 3}),
    ("draft", {"confidence": 0.0}),
    ("draft", {"shape": "tree", "depth": 4, "top_k": 3, "total_nodes": 12}),
]
NEW = 24
FIRST, SECOND = ("user", "abcabc, and abcabd?"), ("user", "abcabc again")
ANY = NAMED | TREES | CHAINS


STEADY = CostCurve(((1, 1.0), (64, 1.5)))  # no clock decides what is drafted


@cache
def plain(name):
    return make(*ANY[name])


@cache
def wrapped(name) -> CausalModel:
    return wrap(make(*ANY[name]), name, ONE)


@cache
def pair(name) -> Runtime:
    """A target and a draft model of the same family that agrees with it now and then; answers have no end."""
    model_type, changes = ANY[name]
    draft = wrap(make(model_type, changes, noise=0.06), "draft", ONE)
    pair = Runtime(wrapped(name), make_tokenizer(), Prices(STEADY, STEADY), draft=draft)
    pair.end_tokens = frozenset()
    return pair


def run(name, engine, options=None, turns=(FIRST,), new=NEW, **kw):
    options = {"budget": "paper"} | (options or {}) if engine != "autoregressive" else {}
    return list(pair(name).run(Request(tuple(turns), engine, options, max_new_tokens=new, **kw)))


def references(name, texts) -> torch.Tensor:
    """Logits [texts, vocabulary] of transformers' own forward at the end of each text."""
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *([5] * (width - len(text)))] for text in texts])
    with torch.inference_mode():
        logits = plain(name)(input_ids=ids, use_cache=False).logits
    return torch.stack([row[len(text) - 1] for row, text in zip(logits, texts)])


def deep_tree(rng: random.Random, nodes: int) -> tuple[list[int], list[int]]:
    """Tokens and parents of a random tree with its root: deeper than the window, with branches at any depth."""
    parents = [-1]
    for row in range(1, nodes):
        parents.append(row - 1 if rng.random() < 0.6 else rng.randrange(row))
    return [rng.randrange(4, 250) for _ in parents], parents


def paths(parents) -> list[list[int]]:
    found: list[list[int]] = []
    for row, parent in enumerate(parents):
        found.append([*(found[parent] if parent >= 0 else []), row])
    return found


def assert_logits(ours: torch.Tensor, name: str, texts) -> None:
    torch.testing.assert_close(ours, references(name, texts), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("name", families([*NAMED, *TREES]))
def test_tree_logits_are_sequential_logits(name):
    model, rng = wrapped(name), random.Random(name)
    assert model.trees
    for _ in range(2):
        tokens, parents = deep_tree(rng, 30)
        ways = paths(parents)
        deepest = max(ways, key=len)
        assert len(deepest) > WINDOW and deepest != [*range(len(deepest))]
        model.truncate(0)
        model.extend(PROMPT)
        texts = [PROMPT + [tokens[row] for row in way] for way in ways]
        parts = [model.forward(tokens[:9], parents[:9]), model.forward(tokens[9:], parents[9:])]
        assert_logits(torch.cat(parts), name, texts)
        model.drop()
        assert_logits(model.forward(tokens, parents), name, texts)
        model.keep(deepest)
        text = texts[deepest[-1]]
        assert model.length == len(text)
        assert_logits(model.forward([8], [-1]), name, [[*text, 8]])
        assert_logits(model.forward([7, 6, 7], [0, 0, 1]), name, [[*text, 8, 7], [*text, 8, 6], [*text, 8, 7, 7]])
        model.drop()


def test_threads_are_measured_for_a_model_of_several_parts(monkeypatch, tmp_path):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))
    measured = []
    monkeypatch.setattr(tuning, "measure", lambda forward, threads: measured.append(forward(3)) or 1.0)
    assert wrap(make(*TREES["gemma3 of text and images"]), "model", LoadOptions(device="cpu", native=False)).trees
    assert measured and all(torch.is_tensor(logits) for logits in measured)


@pytest.mark.parametrize("name", CHAINS)
def test_a_family_that_cannot_branch_verifies_chains(name):
    model = wrapped(name)
    assert not model.trees
    model.truncate(0)
    model.extend(PROMPT)
    chain = [(3 * i) % 250 + 4 for i in range(2 * WINDOW)]
    texts = [PROMPT + chain[: end + 1] for end in range(len(chain))]
    assert_logits(model.forward(chain, range(-1, len(chain) - 1)), name, texts)
    model.keep([0, 1, 2])
    assert_logits(model.forward([8], [-1]), name, [[*PROMPT, *chain[:3], 8]])
    with pytest.raises(ValueError, match="chains only"):
        model.forward([8, 9], [-1, -1])
    model.drop()


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_decoded_with_is_refused_with_the_reason(name):
    *family, reason = REFUSED[name]
    with pytest.raises(ModelUnavailable, match=reason):
        wrap(make(*family), name, ONE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_encoder_is_seen_through_the_rounding_of_half_precision(dtype):
    *family, reason = REFUSED["bert"]
    with pytest.raises(ModelUnavailable, match=reason):
        wrap(make(*family).to(dtype), "bert", ONE)


@pytest.mark.parametrize(("name", "temperature"), some(
    [*((name, 0.8) for name in ANY), *((name, 0.0) for name in NAMED)], lambda case: case[0] in FAMILIES
))
def test_every_engine_is_lossless(name, temperature):
    *_, baseline = run(name, "autoregressive", temperature=temperature, seed=3)
    assert len(baseline.tokens) == NEW
    accepted = 0
    for engine, options in ENGINES:
        events = run(name, engine, options, temperature=temperature, seed=3)
        assert events[-1] == baseline, engine
        accepted += measure(events).accepted
        branching = any(len(set(r.draft.parents)) < len(r.draft.parents) for r in events if isinstance(r, Round))
        assert branching == (options.get("shape") == "tree" and pair(name).target.trees) or engine == "pld"
    assert accepted > 5


@pytest.mark.parametrize("name", families(NAMED))
def test_the_rejection_law_is_greedy_at_zero_and_repeats(name):
    *_, greedy = run(name, "autoregressive")
    hot = {"law": "rejection", "temperature": 0.9, "seed": 5}
    for engine, options in ENGINES:
        assert run(name, engine, options, law="rejection")[-1] == greedy
        assert run(name, engine, options, **hot)[-1] == run(name, engine, options, **hot)[-1]


@pytest.mark.parametrize("name", families(ANY))
def test_greedy_is_what_transformers_generates(name):
    started, *_, done = run(name, "draft", ENGINES[-1][1])
    prompt = torch.tensor([started.prompt])
    out = plain(name).generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=NEW, eos_token_id=-1
    )
    assert tuple(out[0, prompt.shape[1] :].tolist()) == done.tokens


@pytest.mark.parametrize("name", families(NAMED | CHAINS))
def test_a_second_turn_reuses_rows_and_answers_as_a_cold_run(name):
    runtime = pair(name)
    runtime.forget()
    *_, answer = run(name, "pld", ENGINES[0][1])
    turns = (FIRST, ("assistant", answer.text), SECOND)
    warm, cold = [], []
    for events in (warm, cold):
        events += run(name, "draft", ENGINES[-1][1], turns)
        runtime.forget()
    reused = [next(e.reused for e in events if isinstance(e, Prefilled)) for events in (warm, cold)]
    assert reused[0] > 2 * WINDOW and reused[1] == 0
    assert warm[-1] == cold[-1]


def by_column(outside, kind, size, columns, own):
    """The mistake to make: windows counted in columns."""
    places = np.arange(len(columns))
    return outside(kind, size, places, places[-len(own) :, None])


def one_off(outside, kind, size, columns, own):
    return outside(kind, size + 1, columns, own)


def none_at_all(outside, kind, size, columns, own):
    return np.zeros((len(own), len(columns)), dtype=bool)


@pytest.mark.parametrize("wrong", [by_column, one_off, none_at_all])
@pytest.mark.parametrize("name", ["mistral with window", "gemma2", "smollm3 with window", "llama4 with chunks"])
def test_the_self_test_sees_wrong_windows(name, wrong, monkeypatch):
    model = CausalModel(plain(name), name)
    monkeypatch.setattr(masks, "_outside", partial(wrong, masks._outside))
    assert selftest.selftest(model) is None
    assert not model.trees


@pytest.mark.parametrize("name", ["mistral with window", "gemma3", "llama4 with chunks", "phi3 with window"])
def test_the_self_test_leaves_configurations_as_they_were(name, monkeypatch):
    model = CausalModel(make(*ANY[name]), name)
    before = str(model.model.config.to_dict())
    assert selftest.selftest(model) is None and model.trees
    monkeypatch.setattr(model, "forward", lambda *a: 1 / 0)
    assert "division" in selftest.selftest(model)
    assert str(model.model.config.to_dict()) == before
    assert model.spans == masks.spans(model.model.config) and model.length == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gemma3", "mistral with window", "mixtral", "gpt2"])
def test_half_precision_passes_and_still_sees_wrong_masks(name, dtype, monkeypatch):
    model = as_on_a_gpu(make(*ANY[name], dtype=dtype), name)
    assert model.trees and model.forward([1, 2, 3], [-1, 0, 0]).dtype == dtype
    model.drop()
    model.compute = GenericForward(model.model)  # a forward of our own never makes masks itself
    run = model.compute.run
    monkeypatch.setattr(model.compute, "run", lambda tokens, positions, mask, *more: run(
        tokens, positions, None, *more))
    assert selftest.selftest(model) is None and not model.trees
