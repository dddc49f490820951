"""Strict mode by torch's operations, as on a GPU: in half precision too, with and without drafts the same to the last
bit."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines import Request, load
from engines.cost.curve import CostCurve
from engines.model.causal_model import CausalModel
from engines.model.feature_request import LAST, FeatureRequest
from engines.runtime import Prices, Runtime
from tests.conftest import TURN, add_datastores, make_llama, make_tokenizer
from tests.engines.families import CHAINS, NAMED, TREES, as_on_a_gpu, cached, make
from tests.engines.test_lossless import IDS, VARIANTS
from tests.engines.toys import HIDDEN, MEASURED
from tests.heads import make_head, make_medusa
from tests.tiers import some

TEXT = [(7 * i + i * i) % 250 + 4 for i in range(300)]
CHEAP = CostCurve(((1, 0.1), (64, 0.2)))


def runtime_of(dtype: torch.dtype, strict: bool) -> Runtime:
    target, draft = make_llama(1, layers=3), make_llama(1, layers=3)
    draft.model.layers = draft.model.layers[:2]
    draft.config.num_hidden_layers = 2
    target = as_on_a_gpu(target.to(dtype), "tiny-target", strict)
    heads = {head.config.kind: head for head in (make_head(target), make_medusa(target))}
    prices = Prices(CostCurve(((1, 1.0), (64, 1.5))), CHEAP, dict.fromkeys(heads, CHEAP))
    draft = as_on_a_gpu(draft.to(dtype), "tiny-draft")
    made = Runtime(target, make_tokenizer(), prices, draft=draft, heads=heads)
    add_datastores(f"half-{str(dtype)[-4:]}{'-strict' * strict}", made)
    return made


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def strict(request):
    return runtime_of(request.param, True)


def written(made: Runtime, engine: str, options: dict, temperature: float, new: int = 18) -> list[tuple]:
    """Tokens of a run with their probabilities, each a sum over all logits of its row."""
    kw = {"max_new_tokens": new, "temperature": temperature, "top_p": 0.95, "seed": 3}
    events = list(made.run(Request(TURN, engine, options, **kw)))
    return [(one.token, one.prob) for event in events[2:-1] for one in event.emitted]


@pytest.mark.parametrize("temperature", some([0.0, 0.8], lambda t: t > 0))
def test_every_engine_writes_the_same_from_the_same_logits(strict, temperature):
    alone = written(strict, "autoregressive", {}, temperature)
    variants = VARIANTS[:: 3 if strict.target.dtype == torch.bfloat16 else 8] if temperature else VARIANTS
    names = dict(zip(map(repr, VARIANTS), IDS))
    differ = [names[repr(v)] for v in variants if written(strict, *v, temperature) != alone]
    assert not differ and len(alone) == 17


def test_without_it_they_do_not():
    """Else the test above could not fail."""
    usual = runtime_of(torch.bfloat16, False)
    drafts = [("draft", {}), ("draft", {"shape": "tree"}), ("rest", {"n_min": 1})]
    alone = written(usual, "autoregressive", {}, 0.0, 60)
    assert any(written(usual, *draft, 0.0, 60) != alone for draft in drafts)


def test_a_later_turn_does_not_depend_on_what_the_cache_has_of_the_first(strict):
    texts = set()
    for engine in ("autoregressive", "draft"):
        strict.forget()
        *_, first = strict.run(Request(TURN, engine, max_new_tokens=17))
        turns = (*TURN, ("assistant", first.text), ("user", "again"))
        events = list(strict.run(Request(turns, engine, max_new_tokens=12)))
        assert events[1].reused > 20
        texts.add(tuple((one.token, one.prob) for event in events[2:-1] for one in event.emitted))
    assert len(texts) == 1


def test_what_it_does_and_costs_is_said(strict):
    assert strict.ready.backend.endswith(", strict")
    started = next(strict.run(Request(TURN, "autoregressive", max_new_tokens=1)))
    (note,) = [warning for warning in started.warnings if warning.startswith("strict: ")]
    assert "each token has a forward pass of its own" in note and "drafts cannot be faster" in note


def test_it_is_advised_only_where_it_changes_anything(strict):
    model = as_on_a_gpu(make_llama(1, layers=2), "plain")
    plain = Runtime(model, make_tokenizer(), Prices(CostCurve(((1, 1.0),))))
    assert plain.ready.strict_helps and not strict.ready.strict_helps
    assert not replace(plain.ready, host="server").strict_helps, "another program decodes"


def strict_model(name: str, dtype=torch.bfloat16) -> CausalModel:
    return as_on_a_gpu(make(*{**NAMED, **TREES, **CHAINS}[name], dtype=dtype), name, strict=True)


def fed_alone(model: CausalModel, tokens: list[int], begun: int = 0) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits of these tokens behind the first ``begun`` of them, one at a time, and all rows of the cache."""
    model.truncate(0)
    if begun:
        model.extend(tokens[:begun])
    logits = []
    for token in tokens[begun:]:
        logits.append(model.forward([token], [-1]))
        model.keep([0])
    return torch.cat(logits), cached(model)


MODELS = ["llama", "qwen3", "qwen2 with window", "smollm3", "gemma2", "mpt", "llama4 with chunks"]
_MADE: dict = {}


def shared(name: str, dtype) -> CausalModel:
    if (name, dtype) not in _MADE:
        _MADE[name, dtype] = strict_model(name, dtype)
    return _MADE[name, dtype]


@pytest.mark.thorough
@settings(max_examples=14)
@given(st.sampled_from(MODELS), st.sampled_from([torch.bfloat16, torch.float16]), st.integers(0, 9999))
def test_whatever_is_fed_however_gives_the_same_bits(name, dtype, seed):
    model, dice = shared(name, dtype), random.Random(seed)
    text = [dice.randrange(260) for _ in range(dice.randrange(20, 40))]
    expected, rows = fed_alone(model, text)
    model.truncate(0)
    while model.length < len(text):
        at, here = model.length, dice.randrange(1, 12)
        path = text[at : at + here]
        if dice.random() < 0.2:
            assert torch.equal(model.extend(path), expected[at + len(path) - 1])
            continue
        parents = range(-1, len(path) - 1)
        if dice.random() < 0.3 and len(path) > 1:
            cut = dice.randrange(1, len(path))
            logits = torch.cat([model.forward(path[:cut], parents[:cut]), model.forward(path[cut:], parents[cut:])])
        else:
            logits = model.forward(path, parents)
        assert torch.equal(logits, expected[at : at + len(path)])
        model.keep(list(range(dice.randrange(1, len(path) + 1))))
    assert all(map(torch.equal, cached(model), rows))


def test_hidden_states_and_cosines_are_those_of_the_usual_forward():
    model, usual = shared("qwen3", torch.bfloat16), as_on_a_gpu(make(*NAMED["qwen3"], dtype=torch.bfloat16), "usual")
    found = []
    for one in (model, usual):
        one.truncate(0)
        one.features.request(HIDDEN | MEASURED)
        one.extend(TEXT[:5])
        assert one.features.latest(LAST).shape == (1, 32)
        one.forward(TEXT[5:16], range(-1, 10))
        found.append(one.features.latest(LAST).float())
        one.keep(list(range(9)))
        one.features.request(MEASURED)
    assert found[0].shape == (11, 32) and torch.allclose(*found, atol=0.1)
    for mine, theirs in zip(model.features.mean_cosines(model.length), usual.features.mean_cosines(usual.length)):
        assert mine == pytest.approx(theirs, abs=0.02)
    model.features.request(FeatureRequest())


def test_branches_are_refused():
    model = shared("llama", torch.bfloat16)
    assert not model.trees
    with pytest.raises(ValueError, match="chains"):
        model.forward([3, 4, 5], [-1, 0, 0])
    model.drop()


def test_drafts_without_some_sublayers_are_as_without_it():
    model, usual = strict_model("gemma2"), as_on_a_gpu(make(*NAMED["gemma2"], dtype=torch.bfloat16), "usual")
    logits = []
    for one in (model, usual):
        one.extend(TEXT[:9])
        with one.skipping(frozenset({0}), frozenset()):
            logits.append(one.forward([3, 4, 5, 6], [-1, 0, 0, 2]))
    assert not model.trees and torch.allclose(*logits, atol=0.5)


@pytest.mark.parametrize("name", ["mixtral", "falcon with alibi"])
def test_experts_and_own_masks_give_the_same_bits(name):
    model = strict_model(name)
    expected, rows = fed_alone(model, TEXT[:12])
    model.truncate(0)
    model.extend(TEXT[:5])
    assert torch.equal(model.forward(TEXT[5:12], list(range(-1, 6))), expected[5:])
    model.keep(list(range(7)))
    assert all(map(torch.equal, cached(model), rows))


@pytest.mark.thorough
def test_the_shipped_pair():
    pair = load(dtype="bfloat16", strict=True, threads=1)
    assert not pair.target.one_by_one and not pair.draft.note
    alone = written(pair, "autoregressive", {}, 0.9)
    assert written(pair, "draft", {"shape": "tree"}, 0.9) == alone == written(pair, "pld", {}, 0.9)
