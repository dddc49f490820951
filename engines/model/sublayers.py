"""The attention and MLP sublayers of a model's decoder layers, and forwards without some of them.

A sublayer that is left out costs nothing: while it is, the ``forward`` of its modules and norms is one that does
nothing. No weight is copied or moved, and no keys and values are written in its layer.

``find`` finds the sublayers, whatever a family calls them. One forward of a few tokens is observed: which modules of a
layer hold weights, which norms stand between them and the residual stream, what serves both. Then each sublayer is left
out of its layer, and the layer has to give what it gives when the sublayer runs and its output is taken as zero; else
the sublayer stays where it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from engines.errors import first_line
from engines.libraries.hf import PreTrainedModel, text_config

ATTENTION, MLP = "attention", "mlp"
_ATTENTION_NAME = re.compile("att(e)?n", re.IGNORECASE)
_TOKENS = 5
_TOLERANCE, _HALF_TOLERANCE = 1e-4, 0.02  # of a layer's output: what rounding explains
_PASSES = 0.5  # cosine of a layer's input and output without both sublayers: below, the residual stream is elsewhere
Key = int | str
"""Of an argument: its position, or its name."""
Replacement = tuple[nn.Module, Callable]
"""A module, and what stands in for its ``forward``."""


@dataclass(slots=True, eq=False)
class ModuleCall:
    """A call of a module inside a layer, as it was observed.

    Attributes:
        key: the first argument that is a tensor.
        more: how many things the module returns beside the first; None where it returns the tensor alone.
        args, kwargs, output: of the call, until ``forget``.
    """

    module: nn.Module
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    output: Any
    key: Key = field(init=False)
    more: int | None = field(init=False)

    def __post_init__(self) -> None:
        self.key = next(iter(tensors(self.args, self.kwargs)), 0)
        self.more = len(self.output) - 1 if isinstance(self.output, tuple) else None

    @property
    def input(self) -> torch.Tensor:
        """The first tensor that the module was given, [1, rows, width]."""
        return argument(self.key, self.args, self.kwargs)

    @property
    def result(self) -> torch.Tensor:
        """The first tensor that the module returned, [1, rows, width]."""
        return first(self.output)

    def reads(self, tensor: torch.Tensor) -> bool:
        """Whether this very tensor is among the arguments."""
        return any(given is tensor for given in tensors(self.args, self.kwargs).values())

    def returns(self, tensor: torch.Tensor):
        """What the module would return with another first tensor [1, rows, width]."""
        return tensor if self.more is None else (tensor, *(None,) * self.more)

    def forget(self) -> None:
        """Let go of the tensors."""
        self.args, self.kwargs, self.output = (), {}, None


@dataclass(slots=True)
class Sublayer:
    """The attention or the MLP of a layer.

    Attributes:
        calls: of the modules that hold its weights, in order.
        before, after: calls of norms (and dropouts) between the residual stream and the sublayer; other sublayers may
            use them too.
        residual: the argument that is the residual stream, where the sublayer adds its output to it itself.
    """

    calls: list[ModuleCall]
    before: list[ModuleCall] = field(default_factory=list)
    after: list[ModuleCall] = field(default_factory=list)
    residual: Key | None = None

    @property
    def entry(self) -> ModuleCall:
        """The call that takes the residual stream."""
        return (self.before or self.calls)[0]

    @property
    def contribution(self) -> nn.Module:
        """The module whose output is added to the residual stream."""
        return (self.after or self.calls)[-1].module

    def nothing(self, call: ModuleCall) -> Callable:
        """A forward that does nothing, in the place of one of its modules."""
        if self.residual is not None:
            return lambda *args, **kwargs: call.returns(argument(self.residual, args, kwargs))
        return lambda *args, **kwargs: call.returns(torch.zeros_like(argument(call.key, args, kwargs)))

    def zeroed(self, call: ModuleCall) -> Callable:
        """A forward that runs the module and takes its output as zero."""
        forward = call.module.forward

        def run(*args, **kwargs):
            out = first(forward(*args, **kwargs))
            stream = argument(self.residual, args, kwargs) if self.residual is not None else torch.zeros_like(out)
            return call.returns(stream)

        return run


@dataclass(slots=True)
class DecoderLayer:
    """A decoder layer.

    Attributes:
        call: of the layer itself.
        parts: its sublayers by name.
        removable: names of those that can be left out.
        norms: modules that do nothing where all sublayers that use them are left out, with the names of these.
        plain: whether the layer without both sublayers hands on its input as it is.
        alone: whether the layer returns nothing else.
        parallel: whether both sublayers read the residual stream as the layer got it.
    """

    call: ModuleCall
    parts: dict[str, Sublayer]
    removable: frozenset[str] = frozenset()
    norms: dict[nn.Module, set[str]] = field(default_factory=dict)
    plain: bool = False
    alone: bool = False
    parallel: bool = False

    @property
    def module(self) -> nn.Module:
        return self.call.module

    def replacements(self, left_out: Iterable[str]) -> list[Replacement]:
        """What has to be replaced to run the layer without these sublayers."""
        out = set(left_out)
        if self.plain and self.alone and len(out) == len(self.parts):
            call = self.call
            return [(self.module, lambda *args, **kwargs: call.returns(argument(call.key, args, kwargs)))]
        parts = [self.parts[name] for name in out]
        replacements = [(call.module, part.nothing(call)) for part in parts for call in part.calls]
        return replacements + [(norm, _same) for norm, users in self.norms.items() if users <= out]


class Sublayers:
    """The sublayers of a model.

    Attributes:
        layers: the decoder layers, the first first.
        attention, mlp: layers (from 0) whose attention or MLP can be left out; elsewhere other layers need it, or
            how the layer uses it is not understood.
    """

    def __init__(self, layers: list[DecoderLayer]) -> None:
        self.layers = layers
        self.attention, self.mlp = (
            frozenset(i for i, layer in enumerate(layers) if name in layer.removable) for name in (ATTENTION, MLP)
        )
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
            names = ({name for name, out in ((ATTENTION, attention), (MLP, mlp)) if i in out}
                     for i in range(len(self.layers)))
            plan = [stub for layer, out in zip(self.layers, names) if out for stub in layer.replacements(out)]
            self._plans = {(attention, mlp): plan}  # the last one: drafting asks for the same again and again
        with forwards_replaced(plan):
            yield


@contextmanager
def forwards_replaced(replacements: Iterable[Replacement]) -> Iterator[None]:
    """Inside, these modules have another ``forward``."""
    before: list[tuple[nn.Module, Callable | None]] = []
    try:
        for module, forward in replacements:
            before.append((module, vars(module).get("forward")))
            module.forward = forward
        yield
    finally:
        for module, own in reversed(before):
            if own is None:
                del module.forward
            else:
                module.forward = own


def argument(key: Key, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """An argument of a call."""
    return args[key] if type(key) is int else kwargs[key]


def first(output: Any) -> torch.Tensor:
    """The tensor [..., width] that a module returns, alone or before other things."""
    return output[0] if isinstance(output, tuple) else output


def tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Key, torch.Tensor]:
    """The arguments that are tensors of floating-point numbers, of any shape, by position or name."""
    given = [*enumerate(args), *kwargs.items()]
    return {key: value for key, value in given if isinstance(value, torch.Tensor) and value.is_floating_point()}


def _same(stream: torch.Tensor, *args, **kwargs) -> torch.Tensor:
    """The residual stream [1, rows, width] as it is."""
    return stream


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


@torch.inference_mode()
def find(model: PreTrainedModel) -> Sublayers:
    """The sublayers of a model, in one forward of a few tokens and some more of each layer. Raises
    UnsupportedStructure: its layers are not understood."""
    step = max(1, text_config(model.config).vocab_size // 97)
    tokens = torch.tensor([[7 + i * step for i in range(_TOKENS)]], device=model.device)
    reason = UnsupportedStructure("its layers are not called one after another")
    for modules in layer_lists(model):  # more than one where a layer has lists too, or the model more than one tower
        found: list[DecoderLayer] = []
        hooks = [hook for module in modules for hook in _watch(module, found)]
        try:
            model(input_ids=tokens, use_cache=False)
        except UnsupportedStructure as error:
            reason = error
        except Exception as error:  # whatever a family raises where one of its modules is called otherwise
            reason = UnsupportedStructure(f"its layers cannot be told apart: {first_line(error)}")
        finally:
            for hook in hooks:
                hook.remove()
        if found and [layer.module for layer in found] == list(modules):
            return Sublayers(found)
    raise reason


def _watch(module: nn.Module, found: list[DecoderLayer]) -> list:
    """Hooks on a layer that append to ``found`` what is understood of it."""
    calls: list[ModuleCall] = []
    shared: list[tuple[Mapping, dict]] = []  # what layers hand on to one another
    hooks = []

    def note(child, args, kwargs, output, name) -> None:
        calls.append(ModuleCall(child, name, args, kwargs, output))

    def begin(layer, args, kwargs) -> None:
        calls.clear()
        shared[:] = [(given, _entries(given)) for given in (*args, *kwargs.values()) if isinstance(given, Mapping)]

    def end(layer, args, kwargs, output) -> None:
        for hook in hooks:
            hook.remove()
        gives = any(_entries(given) != before for given, before in shared)
        found.append(_study(ModuleCall(layer, "", args, kwargs, output), list(calls), gives))

    for name, child in module.named_children():
        hooks.append(child.register_forward_hook(
            lambda m, args, kwargs, output, name=name: note(m, args, kwargs, output, name), with_kwargs=True
        ))
    hooks.append(module.register_forward_pre_hook(begin, with_kwargs=True))
    hooks.append(module.register_forward_hook(end, with_kwargs=True))
    return hooks


def _entries(given: Mapping) -> dict:
    return {key: id(value) for key, value in given.items()}


def _study(whole: ModuleCall, calls: list[ModuleCall], gives: bool) -> DecoderLayer:
    """What a layer is made of. ``gives``: its attention hands keys and values to later layers, and has to stay."""
    layer = DecoderLayer(whole, _parts(calls))
    for name, part in layer.parts.items():
        for call in (*part.before, *part.after):
            layer.norms.setdefault(call.module, set()).add(name)
    layer.parallel = layer.parts[MLP].entry.input is whole.input
    removable = {name for name in layer.parts if _can_go(layer, {name})}
    if removable == set(layer.parts):
        rest = _replay(layer, layer.replacements(removable))
        if not _can_go(layer, removable) or not _passes(rest, whole.input):
            removable = set()
        others = whole.output[1:] if isinstance(whole.output, tuple) else ()
        layer.plain = _alike(rest, whole.input)
        layer.alone = not any(isinstance(other, torch.Tensor) for other in others)
    if not removable:
        raise UnsupportedStructure("what its layers do with the outputs of attention and MLP is not understood")
    layer.removable = frozenset(removable - {ATTENTION} if gives else removable)
    for call in (whole, *calls):
        call.forget()
    return layer


def _parts(calls: list[ModuleCall]) -> dict[str, Sublayer]:
    """Attention and MLP of a layer, each with the norms beside it."""
    weighty = [call for call in calls if _holds_weights(call.module)]
    blocks = [call for call in weighty if any(True for _ in call.module.children())]
    attention = [call for call in blocks if _ATTENTION_NAME.search(call.name)]
    if len(attention) != 1:
        raise UnsupportedStructure(f"its layers have {len(attention)} attention modules where one is expected")
    after = [call for call in weighty if calls.index(call) > calls.index(attention[0])]
    mlp = [call for call in blocks if call is not attention[0]] or after  # or bare linear layers
    if not mlp:
        raise UnsupportedStructure("its layers have no MLP beside the attention")
    leaves = [call for call in calls if not _holds_weights(call.module)]
    return {name: _part(found, leaves, calls) for name, found in ((ATTENTION, attention), (MLP, mlp))}


def _part(found: list[ModuleCall], leaves: list[ModuleCall], calls: list[ModuleCall]) -> Sublayer:
    part, start, end = Sublayer(found), calls.index(found[0]), calls.index(found[-1])
    reads, made = list(found), [call.result for call in found]
    for call in reversed(leaves):
        if calls.index(call) < start and any(reader.reads(call.result) for reader in reads):
            part.before.insert(0, call)
            reads.append(call)
    given = tensors(found[0].args, found[0].kwargs)
    alike = [key for key, tensor in given.items() if tensor.shape == found[0].result.shape]
    if len(found) == 1 and len(alike) > 1:
        part.residual = alike[1]
        return part
    for call in leaves:
        if calls.index(call) > end and any(call.reads(tensor) for tensor in made):
            part.after.append(call)
            made.append(call.result)
    return part


def _holds_weights(module: nn.Module) -> bool:
    """Whether it is, or contains, a linear layer (in whatever layout) or another matrix."""
    return any(hasattr(m, "in_features") for m in module.modules()) or any(p.ndim > 1 for p in module.parameters())


def _can_go(layer: DecoderLayer, names: set[str]) -> bool:
    """Whether these sublayers can be left out; norms that turn out to serve others too stay from then on."""
    try:
        true = _replay(layer, [(c.module, layer.parts[n].zeroed(c)) for n in names for c in layer.parts[n].calls])
        if _alike(_replay(layer, layer.replacements(names)), true):
            return True
        layer.norms = {norm: users for norm, users in layer.norms.items() if not users <= names}
        return _alike(_replay(layer, layer.replacements(names)), true)
    except Exception:  # whatever a family does with outputs that are not there
        return False


def _replay(layer: DecoderLayer, replacements: list[Replacement]) -> torch.Tensor:
    """What the layer gives, [1, rows, width], called as it was observed but with these replacements."""
    with forwards_replaced(replacements):
        return first(layer.module.forward(*layer.call.args, **layer.call.kwargs))


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether rounding explains the difference of two outputs [1, rows, width] of a layer."""
    if a.shape != b.shape:
        return False
    tolerance = _TOLERANCE if b.dtype in (torch.float32, torch.float64) else _HALF_TOLERANCE
    a, b = a.float(), b.float()
    return bool((a - b).square().mean().sqrt() <= tolerance * (b.square().mean().sqrt() + 1e-9))


def _passes(rest: torch.Tensor, stream: torch.Tensor) -> bool:
    """Whether the residual stream [1, rows, width] comes through a layer without its sublayers, as ``rest``."""
    return bool(torch.cosine_similarity(rest.float(), stream.float(), dim=-1).mean() > _PASSES)
