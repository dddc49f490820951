"""The attention and MLP sublayers of a model's decoder layers, and forwards without some of them.

A sublayer that is left out costs nothing: while it is, the ``forward`` of its modules and norms is one that does
nothing. No weight is copied or moved, and no keys and values are written in its layer. ``sublayer_discovery`` finds
the sublayers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

ATTENTION, MLP = "attention", "mlp"
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
        """Forwards of the module without these sublayers (layers from 0).

        Raises:
            ValueError: one of them cannot be left out.
        """
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
