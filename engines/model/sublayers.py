"""The attention and MLP sublayers of a model's decoder layers, and forwards without some of them.

A table says what families call the modules of a layer. A sublayer that is left out costs nothing: while it is, the
``forward`` of its modules and norms is one that does nothing. No weight is copied or moved, and no keys and values are
written in its layer. ``find`` tests what the table says: a model without its sublayers has to give what it gives when
they run and their outputs are taken as zero, and the residual stream has to come through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from engines.errors import first_line
from engines.libraries.hf import PreTrainedModel, text_config

ATTENTION, MLP = "attention", "mlp"
_TOKENS = 5
_TOLERANCE = 1e-4  # of what a layer gives: what rounding explains
_PASSES = 0.5  # cosine of a layer's input and output without both sublayers: below, the residual stream is elsewhere
Replacement = tuple[nn.Module, Callable]
"""A module, and what stands in for its ``forward``."""


class _Names(NamedTuple):
    """What a family calls the modules of a layer's sublayers, each in the order in which they run: norms first and
    last, between them what holds the weights. ``parallel``: as of ``DecoderLayer``, where the layer does not say."""

    attention: tuple[str, ...]
    mlp: tuple[str, ...]
    parallel: bool = False


_FAMILIES = (  # a layer is described by the first all of whose modules it has
    _Names(("input_layernorm", "self_attn", "post_attention_layernorm"),
           ("pre_feedforward_layernorm", "mlp", "post_feedforward_layernorm")),  # Gemma
    _Names(("self_attn", "post_attention_layernorm"), ("mlp", "post_feedforward_layernorm")),  # OLMo 2 and 3
    _Names(("input_layernorm", "self_attn"), ("post_attention_layernorm", "mlp")),  # Llama, Qwen, Mistral, DeepSeek
    _Names(("input_layernorm", "self_attn"), ("post_attention_layernorm", "feed_forward")),  # Llama 4
    _Names(("input_layernorm", "self_attn"), ("input_layernorm", "mlp"), parallel=True),  # Cohere, Phi
    _Names(("ln_1", "attn"), ("ln_2", "mlp")),  # GPT-2, GPT-Neo
    _Names(("ln_1", "attn"), ("ln_1", "mlp"), parallel=True),  # GPT-J
    _Names(("input_layernorm", "attention"), ("post_attention_layernorm", "mlp")),  # GPT-NeoX
    _Names(("self_attn_layer_norm", "self_attn"), ("final_layer_norm", "fc1", "fc2")),  # OPT
    _Names(("ln_attn", "self_attention"), ("ln_mlp", "mlp"), parallel=True),  # Falcon 40B
    _Names(("input_layernorm", "self_attention"), ("post_attention_layernorm", "mlp")),  # Falcon-RW
    _Names(("input_layernorm", "self_attention"), ("input_layernorm", "mlp"), parallel=True),  # Falcon 7B
)


@dataclass(frozen=True, slots=True)
class Sublayer:
    """The attention or the MLP of a layer: its modules in the order in which they run; ``norms`` are among them."""

    modules: tuple[nn.Module, ...]
    norms: frozenset[nn.Module]


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """A decoder layer.

    Attributes:
        parts: its sublayers by name.
        parallel: whether both sublayers read the residual stream as the layer got it.
    """

    module: nn.Module
    parts: Mapping[str, Sublayer]
    parallel: bool

    def norms(self, out: Iterable[str]) -> set[nn.Module]:
        """Norms that nothing needs without these sublayers."""
        used = {name: self.parts[name].norms for name in self.parts}
        return set().union(*(used[name] for name in out)).difference(*(used[name] for name in used if name not in out))

    def blocks(self, out: Iterable[str]) -> list[nn.Module]:
        """What holds the weights of these sublayers."""
        parts = (self.parts[name] for name in out)
        return [module for part in parts for module in part.modules if module not in part.norms]


class Sublayers:
    """The sublayers of a model.

    Attributes:
        layers: the decoder layers, the first first.
        attention, mlp: layers (from 0) whose attention or MLP can be left out; elsewhere other layers need it.
    """

    def __init__(self, layers: list[DecoderLayer], shared: int = 0) -> None:
        """``shared``: how many of the last layers read keys and values of earlier ones, 0 for none."""
        self.layers = layers
        count = len(layers)
        self.attention, self.mlp = frozenset(range(count - shared if shared else 0, count)), frozenset(range(count))
        self._beside: dict[nn.Module, int | None] = {}  # how many things a module returns beside a tensor; None: alone
        self._plans: dict[tuple[frozenset[int], frozenset[int]], list[Replacement]] = {}

    def __len__(self) -> int:
        return len(self.layers)

    def check(self, attention: frozenset[int], mlp: frozenset[int]) -> None:
        """Raises ValueError where one of these (layers from 0) cannot be left out."""
        if not (attention <= self.attention and mlp <= self.mlp):
            raise ValueError(f"cannot leave out attention {sorted(attention)} and MLP {sorted(mlp)}")

    @contextmanager
    def without(self, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        """Forwards of the module without these sublayers (layers from 0). Raises ValueError: one of them cannot be left
        out."""
        plan = self._plans.get((attention, mlp))
        if plan is None:
            self.check(attention, mlp)
            plan = [stub for layer, out in self._left_out(attention, mlp) for stub in (
                *((block, _nothing(self._beside[block])) for block in layer.blocks(out)),
                *((norm, first_tensor) for norm in layer.norms(out)))]
            self._plans = {(attention, mlp): plan}  # the last one: drafting asks for the same again and again
        with _forwards_replaced(plan):
            yield

    @contextmanager
    def zeroed(self, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        """Forwards of the module in which these sublayers run, and their outputs are taken as zero."""
        with _forwards_replaced([(block, self._zeroed(block)) for layer, out in self._left_out(attention, mlp)
                                 for block in layer.blocks(out)]):
            yield

    def _zeroed(self, block: nn.Module) -> Callable:
        forward = block.forward

        def run(*args, **kwargs):
            out = forward(*args, **kwargs)
            self._beside[block] = len(out) - 1 if isinstance(out, tuple) else None
            zeros = torch.zeros_like(first(out))
            return (zeros, *out[1:]) if isinstance(out, tuple) else zeros

        return run

    def _left_out(self, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[tuple[DecoderLayer, list[str]]]:
        for i, layer in enumerate(self.layers):
            yield layer, [name for name, out in ((ATTENTION, attention), (MLP, mlp)) if i in out]


def _nothing(beside: int | None) -> Callable:
    """A forward that adds nothing, and returns so many things beside that."""

    def forward(*args, **kwargs):
        zeros = torch.zeros_like(first_tensor(*args, **kwargs))
        return zeros if beside is None else (zeros, *(None,) * beside)

    return forward


@contextmanager
def _forwards_replaced(replacements: Sequence[Replacement]) -> Iterator[None]:
    """Inside, these modules have another ``forward``."""
    before = [(module, vars(module).get("forward")) for module, _ in replacements]
    try:
        for module, forward in replacements:
            module.forward = forward
        yield
    finally:
        for module, own in before:
            if own is not None:
                module.forward = own
            elif "forward" in vars(module):
                del module.forward


def first_tensor(*args: Any, **kwargs: Any) -> torch.Tensor:
    """The first argument of a call that is a tensor, [1, rows, width]: the residual stream, as it is or normalised."""
    return next(given for given in (*args, *kwargs.values()) if isinstance(given, torch.Tensor))


def first(output: Any) -> torch.Tensor:
    """The tensor [..., width] that a module returns, alone or before other things."""
    return output[0] if isinstance(output, tuple) else output


class UnsupportedStructure(Exception):
    """The structure of a model's layers is not understood; the message says why, after the model's name."""


def layer_lists(model: PreTrainedModel) -> list[nn.ModuleList]:
    """Lists of modules as long as the configuration says that there are decoder layers."""
    count = text_config(model.config).num_hidden_layers
    return [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == count]


def decoder_layers(model: PreTrainedModel) -> nn.ModuleList:
    """The decoder layers, the first first. Raises UnsupportedStructure: the configuration counts other things than
    modules that are called one after another."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model
    names = {id(module): name for name, module in decoder.named_modules()}
    for modules in layer_lists(model):
        if not any(part.isdigit() for part in names.get(id(modules), "0").split(".")):
            return modules
    raise UnsupportedStructure("its layers are not a list of modules")


def find(model: PreTrainedModel) -> Sublayers:
    """The sublayers of a model, tested in a few forwards of a few tokens. Raises UnsupportedStructure: no family of the
    table has such layers, or they do something else with their sublayers' outputs."""
    shared = getattr(text_config(model.config), "num_kv_shared_layers", None)
    found = Sublayers([_named(layer) for layer in decoder_layers(model)], shared or 0)
    try:
        fits = _fits(model, found)
    except Exception as error:  # whatever a family does with outputs that are not there
        raise UnsupportedStructure(f"its layers cannot do without their outputs: {first_line(error)}") from None
    if not fits:
        raise UnsupportedStructure("what its layers do with the outputs of attention and MLP is not understood")
    return found


def _named(module: nn.Module) -> DecoderLayer:
    children = {name for name, child in module.named_children() if not isinstance(child, nn.ModuleList)}
    names = next((one for one in _FAMILIES if children.issuperset((*one.attention, *one.mlp))), None)
    if names is None:
        raise UnsupportedStructure(f"layers of the kind {type(module).__name__} are not known")
    parts = {
        part: Sublayer(tuple(getattr(module, name) for name in own),
                       frozenset(getattr(module, name) for name in own if "norm" in name or name.startswith("ln_")))
        for part, own in ((ATTENTION, names.attention), (MLP, names.mlp))
    }
    return DecoderLayer(module, parts, bool(getattr(module, "use_parallel_residual", names.parallel)))


@torch.inference_mode()
def _fits(model: PreTrainedModel, found: Sublayers) -> bool:
    """Whether sublayers can be left out: all of attention, all MLPs, and both."""
    step = max(1, text_config(model.config).vocab_size // 97)
    tokens = torch.tensor([[7 + i * step for i in range(_TOKENS)]], device=model.device)
    nothing = frozenset()
    for out in ((found.attention, nothing), (nothing, found.mlp), (found.attention, found.mlp)):
        with found.zeroed(*out):
            expected = _streams(model, found, tokens)
        with found.without(*out):
            streams = _streams(model, found, tokens)
        if not all(_alike(ours[1], theirs[1]) for ours, theirs in zip(streams, expected)):
            return False
    both = found.attention & found.mlp
    return all(begin.shape == end.shape and torch.cosine_similarity(begin, end, dim=-1).mean() > _PASSES
               for i, (begin, end) in enumerate(streams) if i in both)


def _streams(model: PreTrainedModel, found: Sublayers, tokens: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What each layer gets and what it gives, [1, rows, width] in float32, in a forward of ``tokens``."""
    streams: list[tuple[torch.Tensor, torch.Tensor]] = []

    def note(module, args, kwargs, output) -> None:
        streams.append((first_tensor(*args, **kwargs).float(), first(output).float()))

    hooks = [layer.module.register_forward_hook(note, with_kwargs=True) for layer in found.layers]
    try:
        model(input_ids=tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return streams


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether rounding explains the difference of two outputs [1, rows, width] of a layer."""
    return bool((a - b).square().mean().sqrt() <= _TOLERANCE * (b.square().mean().sqrt() + 1e-9))
