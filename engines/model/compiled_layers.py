"""The lean forward with compiled layers: for a few rows, starting operations takes longer than what they compute.

A layer is some thirty operations, and between the products of its linear layers each of them does next to nothing. So
torch's compiler (Inductor, ahead of time) makes one function of all that lies between two attentions: the end of one
layer and the beginning of the next, whose weights are its arguments, so that all layers share a program. There is one
for a single row and one for any number of rows. Attention and the KV buffer stay as they are.

Programs are native code, compiled in half a minute with the machine's C++ compiler and kept in the user's cache. They
compute what the lean forward computes, up to rounding, which the test of a loaded model checks. Forwards without some
sublayers, and those whose sublayers are observed, run as they do without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from engines.errors import first_line
from engines.hub.download import Progress
from engines.machine import measured_file
from engines.model import lean_forward, quantised_linear, weight_layouts
from engines.model.forward import Observer
from engines.model.lean_forward import Exchange, Layer, LeanForward
from engines.model.weight_layouts import LaidOut
from engines.progress import Loading

_KINDS = 2  # of layers, by how their weights are laid out, that are compiled; the others run as they are
_EXAMPLE = 8  # rows that a program for several is compiled with
_MOST = 1 << 20  # rows it takes
Program = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class CompiledForward(LeanForward):
    """The ``Forward`` of Llama-like models on the CPU, with compiled programs for what lies between attentions.

    Args:
        progress: told of each program that is compiled.
    """

    name = "lean, compiled"

    def __init__(self, model: PreTrainedModel, progress: Progress = lambda _: None) -> None:
        super().__init__(model)
        self._weights = [tensors(*pair) for pair in zip(self.layers, self.layers[1:])]
        self._programs: dict[bool, list[Program | None]] = {}  # for several rows or one: a program by layer
        try:
            self._compile(progress)
        except Exception as error:  # the compiler's own, those of torch's compiler, of a cache that cannot be written
            self.name, self.remark = LeanForward.name, f"its layers are not compiled: {first_line(error)}"

    def _compile(self, progress: Progress) -> None:
        if self.embedding.dtype != torch.float32:
            raise ValueError("in half precision a compiled layer would round in other places than the model")
        pairs = list(zip(self.layers, self.layers[1:]))
        kinds = [_kind(*pair) for pair in pairs]
        common = [kind for kind, _ in Counter(kinds).most_common(_KINDS)]
        for several in (False, True):
            made: dict[str, Program] = {}
            for kind in common:
                pair = pairs[kinds.index(kind)]
                if all(isinstance(one, LaidOut) and one.compiles[several] for one in _linears(*pair)):
                    made[kind] = self._program(kind, pair, several, progress)
            if made:
                self._programs[several] = [made.get(kind) for kind in kinds]
        if not self._programs:
            raise ValueError("no layer lies in memory in a way that torch can compile")

    def _program(self, kind: str, pair: tuple[Layer, Layer], several: bool, progress: Progress) -> Program:
        """As kept, or compiled and kept."""
        facts = [kind, several, self.heads, self.kv_heads, self.head_dim, self.eps, torch.get_num_threads(), _source()]
        file = measured_file("programs", facts).with_suffix(".pt2")
        with contextlib.suppress(Exception):  # not there, damaged, or of a machine that it does not run on
            return _opened(file)
        rows, done = ("several rows", 0.95) if several else ("one row", 0.9)
        progress(Loading(f"compiling layers for {rows}, once", done))
        _compile(_Between(self, *pair), self._example(pair, several), several, file)
        return _opened(file)

    def _example(self, pair: tuple[Layer, Layer], several: bool) -> tuple[Any, ...]:
        """Arguments of ``_Between``."""
        rows, like = _EXAMPLE if several else 1, self.embedding
        sizes = (rows, like.shape[1]), (rows, self.heads * self.head_dim), *2 * ((rows, 1, self.head_dim),)
        return *(torch.zeros(size) for size in sizes), tensors(*pair)

    def layers_over(
        self, ids: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, exchange: Exchange,
        observer: Observer | None = None,
    ) -> torch.Tensor:
        observer, programs = observer or self._layer_observer, self._programs.get(len(ids) > 1)
        if programs is None or any(self._without) or (observer is not None and observer.sublayers is not None):
            return super().layers_over(ids, cos, sin, exchange, observer)
        x, layers, weights, end = F.embedding(ids, self.embedding), self.layers, self._weights, len(self.layers) - 1
        states = self.states(layers[0], x, cos, sin)
        for i, layer in enumerate(layers):
            attended = exchange(i, states, layer.kind)
            if i < end and (program := programs[i]) is not None:
                x, states = program([x, attended, cos, sin, *weights[i]])
            else:
                x = self.after_mlp(layer, layer.add_attention(x, attended))
                states = self.states(layers[i + 1], x, cos, sin) if i < end else states
            if observer is not None:
                observer.see_layer(i + 1, x)
        return x


class _Between(nn.Module):
    """What lies between the attentions of two layers, as a function of tensors alone: the residual stream [rows, width]
    before, what attention gave [rows, width], cosines and sines [rows, 1, head dim], and ``tensors`` of the layers.
    Gives the stream before the next attention, and its queries, keys and values."""

    def __init__(self, compute: LeanForward, this: Layer, after: Layer) -> None:
        super().__init__()
        self._compute, self._pair = compute, (this, after)

    def forward(
        self, x: torch.Tensor, attended: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, held: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        this, after = _holding(*self._pair, iter(held))
        x = self._compute.after_mlp(this, this.add_attention(x, attended))
        return x, self._compute.states(after, x, cos, sin)


def _linears(this: Layer, after: Layer) -> tuple[nn.Module, ...]:
    """The linear layers between two attentions."""
    return *this.linears[1:], after.linears[0]


def tensors(this: Layer, after: Layer) -> list[torch.Tensor]:
    """All weights that are used between the attentions of two layers, none where one of them is not ``LaidOut``."""
    linears = _linears(this, after)
    if not all(isinstance(one, LaidOut) for one in linears):
        return []
    found = [this.mlp_norm, after.norm, *([] if after.head_norms is None else [after.head_norms])]
    for one in linears:
        found += [*one.held, *([] if one.bias is None else [one.bias.detach()])]
    return found


def _holding(this: Layer, after: Layer, held: Iterator[torch.Tensor]) -> tuple[Layer, Layer]:
    """Layers like these, of the ``tensors`` given."""
    mlp_norm, norm = next(held), next(held)
    head_norms = None if after.head_norms is None else next(held)
    linears = [
        one.holding([next(held) for _ in one.parts], None if one.bias is None else next(held))
        for one in _linears(this, after)
    ]
    this = replace(this, mlp_norm=mlp_norm, linears=(this.linears[0], *linears[:3]))
    return this, replace(after, norm=norm, head_norms=head_norms, linears=(linears[3], *after.linears[1:]))


def _kind(this: Layer, after: Layer) -> str:
    """What a program for these layers depends on."""
    linears = [(type(one).__name__, one.bias is not None) for one in _linears(this, after)]
    sizes = [(tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) for tensor in tensors(this, after)]
    return repr((linears, sizes, after.rope, after.head_norms is not None))


@cache
def _source() -> str:
    """Digest of the code that programs are made of."""
    files = [module.__file__ for module in (lean_forward, quantised_linear, weight_layouts)] + [__file__]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _compile(between: _Between, example: tuple[Any, ...], several: bool, file: Path) -> None:
    """Compile for one row, or for any number of rows, into a file."""
    from torch._inductor import aoti_compile_and_package

    shapes = None
    if several:
        rows = torch.export.Dim("rows", min=2, max=_MOST)
        shapes = *4 * ({0: rows},), [None] * len(example[-1])
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(f".{os.getpid()}.pt2")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(between, example, dynamic_shapes=shapes)
            # as many threads as torch has when it runs, not when it was compiled
            aoti_compile_and_package(program, package_path=str(half), inductor_configs={"cpp.dynamic_threads": True})
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)


def _opened(file: Path) -> Program:
    """A compiled program. Raises whatever torch does where there is none."""
    if not file.is_file():
        raise FileNotFoundError(file)
    return torch._C._aoti.AOTIModelPackageLoader(str(file), "model", False, 1, -1).boxed_run
