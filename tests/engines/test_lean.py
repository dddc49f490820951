"""The forward of our own computes what the module of transformers computes, on every family it takes."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.errors import ModelUnavailable
from engines.model import loading
from engines.model.causal_model import CausalModel
from engines.model.feature_request import LAST
from engines.model.forward import GenericForward
from engines.model.fused_layers import LinearSlice, fuse
from engines.model.lean_forward import LeanForward, fits
from engines.model.loading import wrap
from engines.model.native.native_forward import NativeForward
from tests.conftest import ONE, make_llama
from tests.engines.families import NAMED, as_on_a_gpu, cached, make
from tests.engines.toys import HIDDEN, MEASURED

FAMILIES = {
    **{name: NAMED[name] for name in NAMED if name.split()[0] in ("llama", "qwen2", "qwen3", "mistral", "smollm3")},
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, every head its own keys": ("llama", {"num_key_value_heads": 4}),
    "llama, one head of keys": ("llama", {"num_key_value_heads": 1}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, wide heads": ("llama", {"head_dim": 16}),
    "llama 3 rope": ("llama", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }}),
    "qwen2 with yarn": ("qwen2", {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
    }}),
    "qwen3 with window": ("qwen3", NAMED["qwen2 with window"][1]),
    "gemma3": (NAMED["gemma3"][0], NAMED["gemma3"][1] | {"head_dim": 16, "query_pre_attn_scalar": 32}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.3,
                            "logits_scaling": 2.0}),
}
TEXT = [(7 * i + i * i) % 250 + 4 for i in range(40)]
TREE = ([9, 8, 7, 6, 5, 4, 3], [-1, 0, 0, 1, 1, 2, 5])  # tokens, parents


def pair(model, native: bool = False) -> tuple[CausalModel, CausalModel]:
    """A model with the forward of our own, and an untouched copy with the module's."""
    untouched = CausalModel(copy.deepcopy(model), "generic")
    ours = wrap(model, "ours", ONE) if native else as_on_a_gpu(model, "ours")
    assert isinstance(ours.compute, LeanForward) and ours.backend.startswith("native" if native else "lean")
    assert ours.trees
    return ours, untouched


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-5 of the spread of the logits (these random models' are some 10 wide, 1 is the least taken)."""
    spread = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours / spread, theirs / spread, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_the_module(name):
    ours, theirs = pair(make(*FAMILIES[name]))
    for model in (ours, theirs):
        model.features.request(HIDDEN)
    same(ours.extend(TEXT[:20]), theirs.extend(TEXT[:20]))
    same(ours.extend(TEXT[20:26]), theirs.extend(TEXT[20:26]))
    for tokens, parents in (TREE, ([3], [3]), ([3, 4, 5], [7, 8, 9]), ([9], [-1])):
        same(ours.forward(tokens, parents), theirs.forward(tokens, parents))
        same(ours.features.latest(LAST), theirs.features.latest(LAST))
    for model in (ours, theirs):
        model.keep([0, 2, 5])
    same(ours.extend(TEXT[26:27]), theirs.extend(TEXT[26:27]))
    for mine, other in zip(cached(ours), cached(theirs)):
        same(mine, other)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_sublayers_and_their_cosines(name):
    ours, theirs = pair(make(*FAMILIES[name]))
    for model in (ours, theirs):
        model.features.request(MEASURED)
        model.extend(TEXT[:20])
    for attention, mlp in (({0}, {1}), (set(), {0, 1}), ({0, 1}, {0, 1})):
        found = []
        for model in (ours, theirs):
            with model.skipping(frozenset(attention), frozenset(mlp)):
                found.append((model.extend([9, 8]), model.forward([3, 4, 5], [-1, 0, 0])))
        for mine, other in zip(*found):
            same(mine, other)
    for model in (ours, theirs):
        model.forward(*TREE)
        model.keep([0, 1])
        model.extend([7])
    for mine, other in zip(ours.features.mean_cosines(ours.length), theirs.features.mean_cosines(theirs.length)):
        assert mine == pytest.approx(other, abs=1e-6)


def test_what_is_left_out_writes_nothing_and_counts_nothing():
    ours = wrap(make(*FAMILIES["llama"]), "ours", ONE)
    ours.features.request(MEASURED)
    ours.extend(TEXT[:9])
    before = ours.features.mean_cosines(ours.length)
    at_first = cached(ours, ours.cache.capacity)
    with ours.skipping(frozenset({0}), frozenset()):
        ours.extend([5, 6])
        now = cached(ours, ours.cache.capacity)
        assert torch.equal(now[0], at_first[0]) and not torch.equal(now[2], at_first[2])
    assert ours.length == 9 and ours.features.mean_cosines(ours.length) == before


@settings(max_examples=25)
@given(st.data())
def test_whatever_is_fed_however(data):
    ours, theirs = _shared_pair()
    for model in (ours, theirs):
        model.truncate(0)
    seed = data.draw(st.integers(0, 99999))
    dice = random.Random(seed)
    same(ours.extend(TEXT[: 1 + seed % 30]), theirs.extend(TEXT[: 1 + seed % 30]))
    pending = 0
    for _ in range(data.draw(st.integers(1, 4))):
        rows = data.draw(st.integers(1, 9))
        parents = [dice.randrange(-1, pending + i) for i in range(rows)]
        tokens = [dice.randrange(260) for _ in range(rows)]
        same(ours.forward(tokens, parents), theirs.forward(tokens, parents))
        pending += rows
    for model in (ours, theirs):
        model.keep([0])
    same(ours.forward([4, 5], [-1, 0]), theirs.forward([4, 5], [-1, 0]))


_PAIR: list = []


def _shared_pair():
    if not _PAIR:
        _PAIR.extend(pair(make(*FAMILIES["qwen2 with window"])))
    return _PAIR


@pytest.mark.parametrize("name", ["llama with biases", "qwen3"])
def test_with_joined_layers_the_module_still_computes_the_same(name):
    model, untouched = make(*FAMILIES[name]), CausalModel(make(*FAMILIES[name]), "untouched")
    size = CausalModel(model, "plain").weight_bytes
    fuse(model)
    for ours in (CausalModel(model, "ours", compute=LeanForward(model)), CausalModel(model, "module")):
        untouched.truncate(0)
        same(ours.extend(TEXT[:12]), untouched.extend(TEXT[:12]))
        same(ours.forward(*TREE), untouched.forward(*TREE))
        assert ours.weight_bytes == size
    part = next(m for m in model.modules() if isinstance(m, LinearSlice))
    assert part.weight.shape == (part.out_features, part.in_features)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen2 with window"])
def test_half_precision_is_as_far_from_float32_as_the_module_is(name, dtype):
    exact = CausalModel(make(*FAMILIES[name]), "exact")
    ours, theirs = pair(make(*FAMILIES[name], dtype=dtype))
    logits = [model.extend(TEXT[:30]).float() for model in (exact, ours, theirs)]
    errors = [(half - logits[0]).square().mean().sqrt() for half in logits[1:]]
    assert errors[0] < 2 * errors[1] + 0.05
    assert ours.forward(*TREE).dtype == dtype


def test_a_long_text_in_chunks_and_a_grown_table():
    ours, theirs = pair(make_llama(3, context=4096))
    long = (TEXT * 60)[:2200]
    same(ours.extend(long), theirs.extend(long))
    same(ours.forward(*TREE), theirs.forward(*TREE))


@pytest.fixture
def untested(monkeypatch, tmp_path):
    """No model has passed the self-test here before."""
    monkeypatch.setenv("SPEC_TUI_CACHE_DIR", str(tmp_path))


@pytest.fixture
def positions_doubled(monkeypatch):
    """Native code rotates twice as far."""
    right = NativeForward.run
    monkeypatch.setattr(NativeForward, "run", lambda self, tokens, positions, *more: right(
        self, tokens, [2 * position for position in positions], *more))


def test_a_wrong_forward_is_found_at_load_and_not_used(positions_doubled, untested):
    model = wrap(make_llama(1, hidden=64), "odd", ONE)
    assert isinstance(model.compute, GenericForward) and model.trees and model.backend.startswith("generic")
    same(model.extend(TEXT), CausalModel(make_llama(1, hidden=64), "untouched").extend(TEXT))


def test_a_forward_that_fails_at_load_is_not_used(monkeypatch, untested):
    monkeypatch.setattr(NativeForward, "run", lambda self, *a: 1 / 0)
    model = wrap(make_llama(1, hidden=64), "odd", ONE)
    assert isinstance(model.compute, GenericForward) and model.trees


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gemma2", NAMED["gemma2"][1]), ("phi3", {"sliding_window": None}), ("mixtral", {}),
        ("llama", {"hidden_act": "gelu"}),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}),
    ],
)
def test_other_models_are_left_alone(name, changes):
    model = make(name, changes)
    assert not fits(model)
    assert isinstance(wrap(model, name, ONE).compute, GenericForward)


@pytest.mark.parametrize("name", ["gemma3", "granite"])
def test_some_are_computed_in_float32_only(name):
    assert fits(make(*FAMILIES[name])) and not fits(make(*FAMILIES[name], dtype=torch.bfloat16))


def test_a_module_with_a_class_of_its_own_is_left_alone():
    model = make_llama(1)
    model.__class__ = type("LlamaForCausalLM", (type(model),), {})
    assert not fits(model)
    assert loading.wrap(model, "own", ONE).backend.startswith("generic")


def test_the_fingerprint_is_of_the_numbers():
    model = make_llama(1)
    expected = loading.weights_fingerprint(model)
    assert loading.weights_fingerprint(make_llama(1)) == expected
    model.model.layers[0].mlp.up_proj.weight.data[0, 0] += 1
    assert loading.weights_fingerprint(model) != expected
    model.model.layers[1].self_attn.o_proj.weight.data.fill_(torch.nan)
    with pytest.raises(ModelUnavailable, match=r"o_proj\.weight is damaged: some of its numbers are nan"):
        loading.weights_fingerprint(model)
