"""Hidden states by layer are those that transformers gives, for every row, however it came into the cache."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from engines.errors import UsageProblem
from engines.model.causal_model import CausalModel
from engines.model.cuda_graphs import CudaGraphForward
from engines.model.feature_request import COSINES, LAST, FeatureRequest
from engines.model.fused_layers import fuse
from engines.model.loading import wrap
from tests.conftest import ONE
from tests.engines.families import make
from tests.engines.recorder import Recorder
from tests.engines.test_families import ANY, deep_tree, paths, plain, wrapped
from tests.engines.test_strict import strict_model
from tests.engines.test_sublayers import LONGCAT
from tests.tiers import families

TEXT = [(5 * i + i * i) % 250 + 4 for i in range(40)]
EVERY = FeatureRequest(history=frozenset({1, 2, LAST}))


def expected(module, tokens) -> dict:
    """States [rows, width] by tap, of the module's own forward over a text."""
    seen = []
    layers = next(m for m in module.modules() if isinstance(m, torch.nn.ModuleList) and len(m) >= 2)
    hook = layers[1].register_forward_hook(lambda m, args, out: seen.append(out[0] if isinstance(out, tuple) else out))
    with torch.inference_mode():
        states = module(torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False).hidden_states
    hook.remove()
    return {1: states[1][0], 2: seen[0].reshape(len(tokens), -1), LAST: states[-1][0]}


def assert_rows(model: CausalModel, module, tolerance: float = 2e-4) -> None:
    """All committed rows have the states of their text, by every tap."""
    for tap, states in expected(module, model.tokens).items():
        found = model.features.rows(tap, 0, model.length)
        spread = float(states.abs().max())
        torch.testing.assert_close(found.float() / spread, states.float() / spread, atol=tolerance, rtol=0)


def path_to(row: int, parents) -> list[int]:
    return paths(parents)[row]


def answer(model: CausalModel, rng: random.Random, rounds: int = 3) -> None:
    """Some rounds of drafts, as the loop verifies them; drafts of a part of the model between them."""
    for _ in range(rounds):
        tokens, parents = deep_tree(rng, 7)
        parents = parents if model.trees else [*range(-1, 6)]
        if model.trees:
            model.forward(tokens[:3], parents[:3])
            model.forward(tokens[3:], parents[3:])
        else:
            model.forward(tokens, parents)
        pending = model.features.rows(LAST, model.length)
        latest = model.features.latest(LAST)
        assert len(pending) == 7 and torch.equal(pending[7 - len(latest) :], latest)
        model.keep(path_to(rng.randrange(7), parents))


@pytest.mark.parametrize("name", families([name for name in ANY if name != LONGCAT]))
def test_states_of_every_row_are_those_transformers_gives(name, monkeypatch):
    monkeypatch.setattr("engines.model.causal_model.CHUNK", 7)
    model, rng = wrapped(name), random.Random(name)
    model.truncate(0)
    with model.features.requested(EVERY):
        model.extend(TEXT[:17])
        assert torch.equal(model.features.latest(LAST), model.features.rows(LAST)[-1:])
        assert_rows(model, plain(name))
        answer(model, rng)
        assert_rows(model, plain(name))
        text = [*model.tokens[:19], *TEXT]
        assert model.rewind(text) >= 19
        model.extend(text[model.length :])
        assert_rows(model, plain(name))
    model.truncate(0)


@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_rows_without_them_are_read_again(name):
    model = wrapped(name)
    model.truncate(0)
    with model.features.requested(EVERY):
        model.extend(TEXT[:9])
    model.extend(TEXT[9:20])  # another engine's answer
    with model.features.requested(FeatureRequest(latest=frozenset({LAST}))):
        assert model.rewind(TEXT) == 20, "the states of the last forward are wanted, whatever came before it"
    with model.features.requested(EVERY):
        assert model.rewind(TEXT) == 9
        model.extend(TEXT[9:])
        assert_rows(model, plain(name))
    with model.features.requested(FeatureRequest(history=frozenset({1}))):
        assert model.rewind(TEXT) == len(TEXT) - 1, "the same rows, fewer taps"
    model.truncate(0)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_drafts_of_a_part_of_the_model_do_not_count(name):
    model = wrapped(name)
    model.truncate(0)
    with model.features.requested(EVERY | FeatureRequest(latest=frozenset({LAST}))):
        model.extend(TEXT[:9])
        model.forward([5, 6], [-1, 0])
        latest = model.features.latest(LAST)
        model.keep([0])
        with model.skipping(frozenset({0}), frozenset()):
            model.extend([7])
            model.forward([8, 9], [-1, -1])
            model.keep([1])
        assert torch.equal(model.features.latest(LAST), latest)
        assert_rows(model, plain(name))
        model.forward([5], [-1])
        model.keep([0])
        assert_rows(model, plain(name))
    model.truncate(0)


@pytest.mark.parametrize("name", ["llama", "qwen3", "smollm3 with window"])
def test_programs_of_cuda_graphs_copy_them_out(name):
    module, recorder = make(*ANY[name]), Recorder()
    theirs = copy.deepcopy(module)
    fuse(module)
    model = CausalModel(module, "graphs", compute=CudaGraphForward(module, recorder))
    with model.features.requested(EVERY):
        model.extend(TEXT[:17])
        answer(model, random.Random(name))
        assert_rows(model, theirs)
    replayed, recorded = recorder.replayed, recorder.recorded
    assert replayed > recorded > 0
    with model.features.requested(FeatureRequest(history=frozenset({2}))):
        model.forward([5], [-1])
        assert recorder.recorded == recorded + 1, "programs are those of the layers that are asked for"
        model.drop()
    with model.features.requested(EVERY):
        model.forward([5], [-1])
    assert recorder.replayed == replayed + 2


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_tokens_fed_one_by_one_show_their_states(name):
    model = strict_model(name)
    with model.features.requested(EVERY):
        model.extend(TEXT[:17])
        answer(model, random.Random(name), 2)
        assert_rows(model, make(*ANY[name], dtype=torch.bfloat16), 0.05)
    model.truncate(0)


def test_nothing_is_kept_while_nothing_is_asked():
    model = wrap(make(*ANY["llama"]), "llama", ONE)
    model.extend(TEXT[:9])
    with model.features.requested(FeatureRequest(latest=frozenset({1}))):
        model.extend(TEXT[9:20])
        assert model.features.latest(1).shape == (1, 32)
        with pytest.raises(ValueError, match="have no 1"):
            model.features.rows(1)
        with pytest.raises(ValueError, match="shown 'last'"):
            model.features.latest(LAST)
    model.extend(TEXT[20:])
    assert not model.features.active
    with pytest.raises(ValueError, match="shown 1"):
        model.features.latest(1)


def test_what_a_model_cannot_show_is_refused(monkeypatch):
    model = CausalModel(make(*ANY["gpt2"]), "gpt2")
    with pytest.raises(UsageProblem, match="layers 1 to 2"):
        model.features.request(FeatureRequest(latest=frozenset({3})))
    monkeypatch.setattr(model.model, "get_output_embeddings", lambda: None)
    with pytest.raises(UsageProblem, match="no language modelling head"):
        model.features.request(FeatureRequest(latest=frozenset({LAST})))
    assert not model.features.active
    with pytest.raises(UsageProblem, match="not a list of modules"):
        wrapped(LONGCAT).features.request(EVERY)
    with model.features.requested(FeatureRequest(history=frozenset({2}), recent=frozenset({COSINES}))):
        model.extend(TEXT[:5])
        assert model.features.rows(COSINES).shape == (5, 4) and model.features.rows(2).shape == (5, 32)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.model.modules())
