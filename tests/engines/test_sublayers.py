"""Forwards without some sublayers, on every family: what is left out adds nothing and costs nothing."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import nn

from engines.errors import UsageProblem
from engines.model.causal_model import CausalModel
from engines.model.loading import wrap
from engines.model.sublayers import ATTENTION, MLP, find
from tests.conftest import ONE, make_llama
from tests.engines.families import CHAINS, NAMED, TREES, cached, make
from tests.tiers import families

ANY = NAMED | TREES | CHAINS
LONGCAT = "longcat, which uses the weight of its router itself"
UNCLEAR = {  # one that is not in the table, and one whose layers do something else with what the table names
    LONGCAT: "not a list of modules", "mpt": "MptBlock are not known", "bloom": "is not understood",
}
CLEAR = [name for name in ANY if name not in UNCLEAR]
VARIANTS = {  # of a family, by its configuration: where norms are, and what goes on side by side
    "falcon one after another": ("falcon", {"alibi": True, "parallel_attn": False}),
    "falcon with two norms": ("falcon", {"alibi": False, "new_decoder_architecture": True}),
    "gpt_neox one after another": ("gpt_neox", {"use_parallel_residual": False}),
    "stablelm side by side": ("stablelm", {"use_parallel_residual": True}),
}
PROMPT = [(7 * i + i * i) % 250 + 4 for i in range(9)]
NONE: frozenset[int] = frozenset()
LAST = ("o_proj", "c_proj", "out_proj", "dense", "dense_4h_to_h", "fc2", "fc_out", "w2", "down_proj", "router")


@cache
def made(name):
    return make(*(ANY | VARIANTS)[name])


@cache
def wrapped(name) -> CausalModel:
    return wrap(copy.deepcopy(made(name)), name, ONE)


def blocks(layer: nn.Module, kind: str) -> list[nn.Module]:
    """The modules of a sublayer by what families call them."""
    named = dict(layer.named_children())
    attention = [m for n, m in named.items() if n in ("self_attn", "attn", "attention", "self_attention")]
    mlp = [m for n, m in named.items() if n in ("mlp", "ffn", "feed_forward")] or [layer.fc1, layer.fc2]
    return attention if kind == ATTENTION else mlp


def silenced(name: str, attention: frozenset[int], mlp: frozenset[int]) -> nn.Module:
    """The model with the last weights of these sublayers, and biases in them, set to zero: they add nothing."""
    model = copy.deepcopy(made(name))
    layers = next(m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) >= 2)
    with torch.no_grad():
        for kind, out in ((ATTENTION, attention), (MLP, mlp)):
            for parameter in (p for i in out for block in blocks(layers[i], kind) for p in last_of(block)):
                parameter.zero_()
    return model


def last_of(block: nn.Module) -> list[nn.Parameter]:
    found = [p for n, p in block.named_parameters() if any(part in LAST for part in n.split("."))]
    found += [p for n, p in block.named_parameters() if n.endswith(("down_proj", "down_proj_bias"))]
    return found or list(block.parameters())


def logits_without(model: CausalModel, tokens, attention, mlp) -> torch.Tensor:
    """Of the tokens after the prompt, one by one, behind a prompt read with all layers."""
    model.truncate(0)
    model.extend(PROMPT)
    with model.skipping(attention, mlp):
        return torch.stack([model.extend([token]) for token in tokens])


def expected(name: str, tokens, attention, mlp) -> torch.Tensor:
    """The same of the model that adds nothing there, over transformers' own rows of the prompt: keys and values of the
    prompt are those of the whole model."""
    from transformers import DynamicCache

    whole, partial, rows = made(name), silenced(name, attention, mlp), DynamicCache()
    with torch.inference_mode():
        whole(input_ids=torch.tensor([PROMPT]), past_key_values=rows, use_cache=True)
        found = [partial(input_ids=torch.tensor([[token]]), past_key_values=rows, use_cache=True) for token in tokens]
    return torch.cat([out.logits[0] for out in found])


@pytest.mark.parametrize("name", families([*CLEAR, *VARIANTS]))
def test_a_sublayer_left_out_is_one_that_adds_nothing(name):
    model = wrapped(name)
    sub = model.sublayers
    assert sub.mlp == frozenset(range(len(sub))) and sub.attention
    tokens = [8, 99, 31]
    first, last = frozenset({min(sub.attention)}), frozenset({len(sub) - 1})
    for attention, mlp in ((first, NONE), (NONE, frozenset({0})), (sub.attention, last), (sub.attention, sub.mlp)):
        ours = logits_without(model, tokens, attention, mlp)
        torch.testing.assert_close(ours, expected(name, tokens, attention, mlp), atol=2e-3, rtol=1e-3)
    assert logits_without(model, tokens, NONE, NONE).sub(ours).abs().max() > 0.01


def test_whole_layers_left_out_are_a_smaller_model():
    whole, small = make_llama(1, layers=4), make_llama(1, layers=4)
    small.model.layers = nn.ModuleList([small.model.layers[0], small.model.layers[3]])
    model = CausalModel(whole, "whole")
    middle = frozenset({1, 2})
    with model.skipping(middle, middle), torch.inference_mode():
        ours = torch.cat([model.forward([t], [i - 1]) for i, t in enumerate(PROMPT)])
        theirs = small(input_ids=torch.tensor([PROMPT]), use_cache=False).logits[0]
    torch.testing.assert_close(ours, theirs)
    assert model.length == 0


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_neox", "cohere2", "opt", "mixtral"])
def test_nothing_of_a_sublayer_runs(name):
    model = CausalModel(made(name), name)
    sub = model.sublayers
    model.truncate(0)
    model.extend(PROMPT)
    rows = [layer.keys[..., model.length :, :].clone() for layer in model.cache.layers]
    ran = []
    layer = sub.layers[0].module
    watched = [m for m in layer.modules() if [*m.parameters(recurse=False)] or hasattr(m, "in_features")]
    for module in watched:  # what costs: a matrix, a norm
        inner = module.forward
        module.forward = lambda *a, inner=inner, module=module, **k: (ran.append(module), inner(*a, **k))[1]
    try:
        with model.skipping(frozenset({0}), frozenset({0})):
            model.extend([8])
            assert not ran
            assert torch.equal(model.cache.layers[0].keys[..., len(PROMPT) :, :], rows[0])
            assert not torch.equal(model.cache.layers[1].keys[..., len(PROMPT) :, :], rows[1])
        model.extend([8])
        assert set(ran) == set(watched) or name == "mixtral"  # whose experts run by turns
    finally:
        for module in watched:
            del module.forward


def test_no_weight_is_copied():
    model = wrapped("llama")
    before = {name: p.data_ptr() for name, p in model.model.named_parameters()}
    with model.skipping(frozenset({1}), frozenset({0})):
        assert {name: p.data_ptr() for name, p in model.model.named_parameters()} == before


class Broken(RuntimeError):
    pass


@pytest.mark.parametrize("fed", ["pending", "committed", "rewound", "nothing"])
def test_whatever_happens_meanwhile_the_rows_are_as_they_were(fed):
    model = wrapped("llama")
    model.truncate(0)
    model.extend(PROMPT)
    rows = cached(model)
    after = model.forward([8], [-1])
    model.drop()
    with pytest.raises(Broken), model.skipping(frozenset({0}), frozenset({1})):
        if fed == "pending":
            model.forward([8, 9], [-1, 0])
        elif fed == "committed":
            model.extend([8, 9])
        elif fed == "rewound":
            model.truncate(4)
            model.extend([8, 9, 10, 11, 12, 13, 14])
        raise Broken
    kept = 4 if fed == "rewound" else len(PROMPT)
    assert model.tokens == PROMPT[:kept] and model.cache.offset == model.length == kept
    model.extend(PROMPT[kept:])
    torch.testing.assert_close(cached(model), rows)
    torch.testing.assert_close(model.forward([8], [-1]), after)
    model.drop()


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_not_understood_is_refused_with_the_reason(name):
    model = wrapped(name)
    for _ in range(2):  # looked for once, said twice
        with pytest.raises(UsageProblem, match=f"cannot be run without some of its layers: .*{UNCLEAR[name]}"):
            model.sublayers  # noqa: B018


def test_attention_that_gives_its_keys_to_others_stays():
    sub = find(made("gemma4 with shared keys"))
    assert sub.attention == {2, 3} and sub.mlp == {0, 1, 2, 3}
    model = wrapped("gemma4 with shared keys")
    with pytest.raises(ValueError, match="cannot leave out"), model.skipping(frozenset({0}), NONE):
        pass
    assert model.sublayers.attention == {2, 3}


class Odd(nn.Module):
    """A layer with the names of Llama whose norms are on the residual stream itself, or whose attention forgets it."""

    def __init__(self, layer: nn.Module, forgets: bool) -> None:
        super().__init__()
        self.self_attn, self.mlp, self.forgets = layer.self_attn, layer.mlp, forgets
        self.input_layernorm, self.post_attention_layernorm = layer.input_layernorm, layer.post_attention_layernorm
        nn.init.uniform_(self.input_layernorm.weight, 0.5, 1.5)

    def forward(self, hidden_states, **kwargs):
        stream = self.self_attn(hidden_states=hidden_states, **kwargs)[0]
        if not self.forgets:
            stream = self.input_layernorm(stream + hidden_states)
        return stream + self.mlp(stream)


@pytest.mark.parametrize("forgets", [True, False])
def test_layers_that_only_have_the_names_are_not_understood(forgets):
    plain = make_llama(1, layers=2)
    plain.model.layers = nn.ModuleList([Odd(layer, forgets) for layer in plain.model.layers])
    with pytest.raises(UsageProblem, match="not understood"):
        CausalModel(plain, "odd").sublayers  # noqa: B018
