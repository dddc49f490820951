"""The model behind the loop: rows, masks, rollback, packing, against plain transformers forwards."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.core.loop import decode
from engines.core.lossless_laws import Exact
from engines.core.outcome import Stop
from engines.core.sampling import Sampling
from engines.methods.drafter import Outcome
from engines.model.causal_model import CausalModel, usable_context
from engines.model.kv_buffer import KVBuffer
from engines.model.loading import wrap
from engines.model.selftest import selftest
from tests.conftest import ONE, make_llama
from tests.engines.families import TREES, cached, make
from tests.engines.toys import Scripted, random_tree

PROMPT = [5, 9, 2, 6, 5, 3, 5, 8]


@pytest.fixture(scope="module")
def plain():
    return make_llama(3)


@pytest.fixture(scope="module")
def model():
    return wrap(make_llama(3), "tiny")


def reference(plain, tokens) -> torch.Tensor:
    with torch.inference_mode():
        return plain(torch.tensor([list(tokens)])).logits[0]


def assert_fresh(model: CausalModel, plain) -> None:
    """The cache equals that of a fresh prefill of the same tokens."""
    assert len(model.tokens) == model.length == model.cache.get_seq_length()
    with torch.inference_mode():
        fresh = plain(torch.tensor([model.tokens]), use_cache=True).past_key_values
    for ours, theirs in zip(cached(model), (half for layer in fresh.layers for half in (layer.keys, layer.values))):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), nodes=st.integers(1, 40))
def test_tree_logits_equal_chain_logits(model, plain, seed, nodes):
    tree = random_tree(random.Random(seed), 260, nodes)
    model.truncate(0)
    model.extend(PROMPT)
    logits = model.forward([1, *tree.tokens], [-1, *(p + 1 for p in tree.parents)])
    for node in range(-1, len(tree)):
        path, at = [], node
        while at >= 0:
            path.insert(0, tree.tokens[at])
            at = tree.parents[at]
        torch.testing.assert_close(logits[node + 1], reference(plain, [*PROMPT, 1, *path])[-1], atol=2e-4, rtol=1e-3)


def test_a_tree_fed_level_by_level_is_the_tree_fed_at_once(model):
    tokens, parents = [4, 5, 6, 7, 8], [-1, 0, 0, 1, 2]
    model.truncate(0)
    model.extend(PROMPT)
    once = model.forward(tokens, parents).clone()
    model.drop()
    levels = [model.forward([4], [-1]), model.forward([5, 6], [0, 0]), model.forward([7, 8], [1, 2])]
    torch.testing.assert_close(torch.cat(levels), once, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_after_every_round_the_cache_is_a_fresh_prefill(model, plain, temperature):
    rng = random.Random(1)
    law = Exact(Sampling(temperature), 1, 260)
    drafter = Scripted(lambda context, room: lucky_tree(plain, rng, context))
    accepted = 0
    for outcome in decode(model, drafter, law, list(PROMPT), Stop(frozenset(), 80)):
        accepted += len(outcome.verdict.path)
        assert_fresh(model, plain)
        assert model.tokens == outcome.context[: model.length]
    assert accepted > 5, "the test must see branches accepted"


def lucky_tree(plain, rng, context):
    """A random tree with the greedy continuation hidden in it, not leftmost."""
    tree = random_tree(rng, 260, rng.randrange(6))
    if rng.random() < 0.8:
        parent, text = -1, list(context)
        for _ in range(3):
            token = int(reference(plain, text)[-1].argmax())
            parent = tree.add(token, parent, None, 0)
            text.append(token)
    return tree


def test_a_row_of_its_own_sees_its_path_only(model):
    """The last row of a level may follow the last of the one before without the rows being a chain."""
    model.truncate(0)
    model.extend(PROMPT)
    once = model.forward([4, 5, 6, 7], [-1, 0, 0, 2])[3].clone()
    model.drop()
    model.forward([4, 5, 6], [-1, 0, 0])
    torch.testing.assert_close(model.forward([7], [2])[0], once, atol=1e-5, rtol=1e-4)


def test_rewind_keeps_the_shared_prefix_and_leaves_a_token_to_feed(model, plain):
    model.truncate(0)
    model.extend(PROMPT)
    assert model.rewind(PROMPT) == len(PROMPT) - 1
    model.extend(PROMPT[-1:])
    assert model.rewind([*PROMPT[:4], 77, 78]) == 4
    logits = model.extend([77, 78])
    torch.testing.assert_close(logits, reference(plain, [*PROMPT[:4], 77, 78])[-1], atol=2e-4, rtol=1e-3)
    assert model.rewind([99]) == 0


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_prefix_is_shared_whatever_holds_the_tokens(model, kind):
    model.truncate(0)
    model.extend(PROMPT)
    assert model.shared(kind([*PROMPT, 77])) == len(PROMPT) and model.shared(kind([*PROMPT[:4], 77])) == 4


def test_a_long_prompt_is_fed_in_pieces(plain):
    model = CausalModel(make_llama(3, context=2048), "long")
    tokens = [(i * 37) % 260 for i in range(1300)]
    logits = model.extend(tokens)
    torch.testing.assert_close(logits, reference(make_llama(3, context=2048), tokens)[-1], atol=1e-3, rtol=1e-3)
    polls = iter([False, True])
    model.truncate(0)
    assert model.extend(tokens, lambda: next(polls)) is None
    assert model.length == 512, "cancelled between pieces; what was fed stays"


def test_a_buffer_that_could_not_grow_is_as_it_was(monkeypatch):
    def no_memory(*_):
        raise RuntimeError("can't allocate memory")

    model, tokens = CausalModel(make_llama(3, context=2048), "long"), [(i * 37) % 260 for i in range(600)]
    model.extend(PROMPT)
    with monkeypatch.context() as full, pytest.raises(RuntimeError, match="allocate"):
        full.setattr(torch.Tensor, "new_zeros", no_memory)
        model.extend(tokens)
    logits = model.extend(tokens)
    expected = reference(make_llama(3, context=2048), [*PROMPT, *tokens])[-1]
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=1e-3)


def test_the_buffer_grows_and_keeps_its_rows(model, plain):
    model.truncate(0)
    model.cache.__init__(len(model.cache.layers))
    model.extend(PROMPT)
    before = model.cache.capacity
    model.forward([1] * 300, range(-1, 299))
    assert model.cache.capacity > before
    model.keep([0, 1, 2])
    assert_fresh(model, plain)


def test_the_buffer_holds_no_more_than_its_layers_need():
    """Keys and values of other widths, and layers of several shapes."""
    for name in ("deepseek_v3", "gemma4 with shared keys"):
        model = wrap(make(*TREES[name]), name, ONE)
        model.forward([1], [-1])  # its shapes are known from then on
        model.drop()
        model.extend(PROMPT * 40)
        rows = sum(layer.keys[0, :, 0].numel() + layer.values[0, :, 0].numel() for layer in model.cache.layers
                   if layer.is_initialized)
        assert model.cache.row_bytes == rows * model.dtype.itemsize


def test_truncate_beyond_the_end_is_refused():
    buffer = KVBuffer(1)
    with pytest.raises(ValueError):
        buffer.truncate(1)


def test_selftest_passes_a_good_model_and_leaves_nothing_behind(model):
    assert selftest(model) is None
    assert model.trees and model.length == 0 and not model.tokens


def test_branches_that_see_each_other_make_it_a_model_of_chains(monkeypatch):
    broken = CausalModel(make_llama(4), "broken")
    run = broken.compute.run
    monkeypatch.setattr(broken.compute, "run", lambda tokens, positions, mask, *more: run(
        tokens, positions, None, *more))
    assert selftest(broken) is None
    assert broken.trees is False
    with pytest.raises(ValueError, match="chains only"):
        broken.forward([1, 2, 3], [-1, 0, 0])


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("extend", lambda logits, tokens: logits + len(tokens), "come from the cache"),
        ("forward", lambda logits, tokens: logits + len(tokens) - 1, "fed at once"),
    ],
)
def test_a_model_whose_logits_depend_on_how_it_is_fed_is_refused(monkeypatch, method, change, words):
    model = CausalModel(make_llama(4), "strange")
    real = getattr(model, method)
    monkeypatch.setattr(model, method, lambda tokens, *a, **k: change(real(tokens, *a, **k), tokens))
    assert words in selftest(model)


def test_a_model_that_cannot_take_a_draft_back_is_refused(monkeypatch):
    model = CausalModel(make_llama(4), "stateful")
    monkeypatch.setattr(model, "keep", lambda rows: CausalModel.keep(model, [*rows, rows[-1] + 1]))
    assert "taken back" in selftest(model)


def test_outcome_reaches_the_drafter(model):
    seen: list[Outcome] = []

    class Listener(Scripted):
        def start(self, outcome):
            seen.append(outcome)

        def learn(self, outcome):
            seen.append(outcome)

    law = Exact(Sampling(), 0, 260)
    drafter = Listener(lambda context, room: random_tree(random.Random(1), 260, 3))
    rounds = decode(model, drafter, law, list(PROMPT), Stop(frozenset(), 5))
    next(rounds), next(rounds)
    assert seen[0].logits.shape == (1, 260) and seen[1].logits.shape == (4, 260)
    emitted = seen[1].verdict.tokens
    assert seen[1].context[-len(emitted) :] == emitted


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"max_seq_len": 32}, 32),
        ({}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 16}}, 16),
        ({"rope_parameters": {"rope_type": "longrope"}, "original_max_position_embeddings": 16}, 16),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope", "original_max_position_embeddings": 8}}}, 8),
        ({"max_position_embeddings": 8, "rope_parameters": {"rope_type": "longrope"}}, 8),
    ],
)
def test_the_context_ends_where_positions_do_or_where_longrope_switches(config, limit):
    found, remarks = usable_context(SimpleNamespace(**config), "m")
    assert found == limit
    assert len(remarks) == (limit < config.get("max_position_embeddings", 4096) and "rope_parameters" in config)
