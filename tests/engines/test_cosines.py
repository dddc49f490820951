"""C_l is the average over the whole context, however its rows came into the cache, on every family."""

from __future__ import annotations

import copy
import random
from functools import cache

import pytest
import torch
from torch import nn

from engines.model.causal_model import CausalModel
from engines.model.feature_request import FeatureRequest
from engines.model.loading import wrap
from tests.conftest import ONE
from tests.engines import test_sublayers
from tests.engines.families import make
from tests.engines.test_sublayers import ANY, ATTENTION, CLEAR, MLP, NONE, PROMPT, blocks, last_of, made
from tests.engines.toys import MEASURED
from tests.tiers import families

TEXT = [(5 * i + i * i) % 250 + 4 for i in range(30)]


def layers_of(model: nn.Module) -> nn.ModuleList:
    return next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) >= 2)


@cache
def wrapped(name) -> CausalModel:
    beside = any(hasattr(layer, "per_layer_projection") for layer in layers_of(made(name)))
    return wrap(plain(name), name, ONE) if beside else test_sublayers.wrapped(name)


def plain(name) -> nn.Module:
    """The model, without what some layers have beside attention and MLP."""
    model = copy.deepcopy(made(name))
    for layer in layers_of(model):
        if hasattr(layer, "per_layer_projection"):
            nn.init.zeros_(layer.per_layer_projection.weight)
    return model


@torch.inference_mode()
def by_hooks(name: str, tokens: list[int]) -> list[torch.Tensor]:
    """Cosines [2, tokens] of each layer of the plain module: each layer is called again, once with an MLP and once with
    an attention that adds nothing."""
    model, found = plain(name), []
    parallel = name.startswith(("gpt_neox", "gptj", "falcon", "cohere"))

    def watch(layer, args, kwargs, output):
        hook[layer].remove()
        stream = (args[0] if args else kwargs["hidden_states"])[0]
        half = {}
        for kind in (ATTENTION, MLP):
            muted = copy.deepcopy(layer)
            for parameter in (p for block in blocks(muted, kind) for p in last_of(block)):
                parameter.zero_()
            out = muted(*args, **kwargs)
            half[kind] = (out[0] if isinstance(out, tuple) else out)[0]
        whole = (output[0] if isinstance(output, tuple) else output)[0]
        pairs = [(stream, half[MLP]), (stream, half[ATTENTION]) if parallel else (half[MLP], whole)]
        found.append(torch.stack([torch.cosine_similarity(a.double(), b.double(), dim=-1) for a, b in pairs]))

    hook = {layer: layer.register_forward_hook(watch, with_kwargs=True) for layer in layers_of(model)}
    model(input_ids=torch.tensor([tokens]), use_cache=False)
    return found


def assert_mean(model: CausalModel, name: str, first: int = 0) -> None:
    attention, mlp, rows = model.features.mean_cosines(model.length)
    assert rows == model.length - first
    expected = torch.stack(by_hooks(name, model.tokens))[..., first:].mean(-1).T
    found = torch.tensor((attention, mlp), dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=1e-3)


@pytest.fixture
def measured():
    """A model that measures, and no more afterwards."""
    models = []

    def give(name: str) -> CausalModel:
        model = wrapped(name)
        model.truncate(0)
        model.features.request(MEASURED)
        models.append(model)
        return model

    yield give
    for model in models:
        model.features.request(FeatureRequest())


@pytest.mark.parametrize("name", families(CLEAR))
def test_the_average_is_that_of_hooks_on_the_plain_model(name, measured):
    model = measured(name)
    model.extend(PROMPT)
    assert_mean(model, name)


@pytest.mark.parametrize("name", ["llama", "gpt_neox", "gemma2", "opt"])
def test_it_covers_what_was_verified_reused_and_taken_back(name, measured):
    model, rng = measured(name), random.Random(name)
    model.extend(TEXT[:8])
    for _ in range(4):
        nodes = rng.randrange(1, 6)
        branching = [-1, *(rng.randrange(row) for row in range(1, nodes))]
        parents = branching if model.trees else [*range(-1, nodes - 1)]
        model.forward([rng.randrange(4, 250) for _ in parents], parents)
        path = [nodes - 1]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        model.keep(path)
        with model.skipping(NONE, frozenset({0})):  # drafts don't count
            model.extend([rng.randrange(4, 250)])
            model.forward([7], [-1])
    assert_mean(model, name)
    model.truncate(10)
    assert_mean(model, name)
    text = [*model.tokens, *TEXT]
    assert model.rewind(text) == 10
    model.extend(text[10:])
    assert_mean(model, name)


@pytest.mark.parametrize(("least", "reused", "first"), [(64, 6, 0), (14, 6, 0), (9, 11, 11), (3, 17, 17)])
def test_of_rows_that_were_not_measured_the_last_are_read_again(least, reused, first, measured, monkeypatch):
    monkeypatch.setattr("engines.model.features.LEAST_RECENT", least)
    model = measured("llama")
    model.extend(TEXT[:6])
    model.features.request(FeatureRequest())
    model.extend(TEXT[6:20])  # another engine's answer
    with pytest.raises(ValueError, match="not measured"):
        model.features.mean_cosines(model.length)
    assert model.rewind(TEXT[:25]) == 20
    model.features.request(MEASURED)
    assert model.rewind(TEXT[:25]) == reused
    model.extend(TEXT[reused:22])
    model.extend(TEXT[22:25])
    assert_mean(model, "llama", first)
    model.forward([5, 6, 7], [-1, -1, 0])
    model.keep([0, 2])
    assert_mean(model, "llama", first)
    assert model.rewind(TEXT[:24]) == 23, "what is measured stays"
    model.extend(TEXT[23:24])
    assert_mean(model, "llama", first)
    text = TEXT[: reused + 2]  # from here on fewer than are wanted
    expected = reused + 1 if not first else reused + 1 - least
    assert model.rewind(text) == expected
    model.extend(text[expected:])
    assert_mean(model, "llama", 0 if not first else expected)


def test_long_prompts_are_summed_in_parts(measured, monkeypatch):
    monkeypatch.setattr("engines.model.causal_model.CHUNK", 7)
    monkeypatch.setattr("engines.model.features._WAITING", 500)
    model = measured("llama")
    model.extend(TEXT)
    assert_mean(model, "llama")


def test_it_is_float32_in_half_precision():
    model = CausalModel(make(*ANY["llama"], dtype=torch.bfloat16), "half")
    model.features.request(MEASURED)
    model.extend(PROMPT)
    found = torch.tensor(model.features.mean_cosines(model.length)[0], dtype=torch.float64)
    assert (found.bfloat16().double() - found).abs().max() > 1e-5
    expected = torch.stack(by_hooks("llama", PROMPT)).mean(-1).T[0]
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def test_hooks_go_when_it_ends(measured):
    model = measured("gpt_neox")
    assert any(m._forward_hooks for m in model.model.modules())
    model.features.request(MEASURED)  # twice is once
    model.features.request(FeatureRequest())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())
