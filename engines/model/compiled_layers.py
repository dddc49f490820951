"""The lean forward with compiled layers: for a few rows, starting operations takes longer than what they compute.

A layer is some thirty operations, and between the products of its linear layers each of them does next to nothing. So
torch's compiler (Inductor, ahead of time) makes one function of all of them, whose weights and whose rows of the KV
buffer are its arguments, so that all layers share a program. There are two: for a single row, a whole layer; for any
number of rows, whose attention is of many kinds, what lies between two attentions: the end of one layer and the
beginning of the next.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
from engines.model.kv_buffer import KVBuffer
from engines.model.lean_forward import Exchange, Layer, LeanForward
from engines.model.masks import Mask
from engines.model.weight_layouts import LaidOut
from engines.progress import Loading

_KINDS = 2  # of layers, by how their weights are laid out, that are compiled; the others run as they are
_EXAMPLE = 8  # rows that a program for several is compiled with
_MOST = 1 << 20  # rows and columns that programs take
_SEEN = 1024  # columns; the row of zeros that stands for no mask grows in multiples of it
Program = Callable[[list[torch.Tensor]], list[torch.Tensor]]


class CompiledForward(LeanForward):
    """The ``Forward`` of Llama-like models on the CPU, with compiled programs for its layers.

    Args:
        progress: told of each program that is compiled.
    """

    name = "lean, compiled"

    def __init__(self, model: PreTrainedModel, progress: Progress = lambda _: None) -> None:
        super().__init__(model)
        self._seen = self.embedding.new_zeros(1, 1, 1, 0)
        self._whole = [_Whole(self, layer) for layer in self.layers]
        self._between = [_Between(self, *pair) for pair in zip(self.layers, self.layers[1:])]
        try:
            if self.embedding.dtype != torch.float32:
                raise ValueError("in half precision a compiled layer would round in other places than the model")
            if not any([self._compile(self._whole, progress), self._compile(self._between, progress)]):
                raise ValueError("no layer lies in memory in a way that torch can compile")
        except Exception as error:  # the compiler's own, those of torch's compiler, of a cache that cannot be written
            self.name, self.remark = LeanForward.name, f"its layers are not compiled: {first_line(error)}"

    def _compile(self, parts: Sequence[_Part], progress: Progress) -> bool:
        """Give those of the most common kinds their programs. Whether there are any."""
        fit = [part for part in parts if part.compiles]
        for kind, _ in Counter(part.kind for part in fit).most_common(_KINDS):
            alike = [part for part in fit if part.kind == kind]
            program = self._program(alike[0], progress)
            for part in alike:
                part.program = program
        return bool(fit)

    def _program(self, part: _Part, progress: Progress) -> Program:
        """As kept, or compiled and kept."""
        sizes = self.heads, self.kv_heads, self.head_dim, self.eps
        facts = [part.rows, part.kind, sizes, torch.get_num_threads(), _source()]
        file = measured_file("programs", facts).with_suffix(".pt2")
        with contextlib.suppress(Exception):  # not there, damaged, or of a machine that it does not run on
            return _opened(file)
        progress(Loading(f"compiling layers for {part.rows}, once", part.done))
        _compile(part, file)
        return _opened(file)

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        columns = cache.offset + 1
        if len(tokens) > 1 or columns < 2 or self._apart(self._layer_observer):
            return super().run(tokens, positions, mask, cache, last_only)
        ids, observer = torch.tensor(tokens, device=self.embedding.device), self._layer_observer
        x, (cos, sin) = F.embedding(ids, self.embedding), self.rotations(positions)
        exchange = self._over(cache, 1, mask)
        rows = cache.pairs(self.kv_heads, self.head_dim, self.embedding).unbind(0)
        seen = mask if isinstance(mask, dict) else dict.fromkeys(self.kinds, mask)
        seen = {kind: self._all(columns) if one is None else one for kind, one in seen.items()}
        for i, (layer, part) in enumerate(zip(self.layers, self._whole)):
            if part.program is not None:
                (x,) = part.program([x, cos, sin, rows[i], seen[layer.kind], *part.held])
            else:
                attended = exchange(i, self.states(layer, x, cos, sin), layer.kind)
                x = self.after_mlp(layer, layer.add_attention(x, attended))
            if observer is not None:
                observer.see_layer(i + 1, x)
        return self.logits(x)

    def _all(self, columns: int) -> torch.Tensor:
        """The mask [1, 1, 1, columns] of a row that sees all."""
        if columns > self._seen.shape[-1]:
            self._seen = self.embedding.new_zeros(1, 1, 1, -(-2 * columns // _SEEN) * _SEEN)
        return self._seen[..., :columns]

    def _apart(self, observer: Observer | None) -> bool:
        """Whether sublayers are left out or observed."""
        return any(self._without) or (observer is not None and observer.sublayers is not None)

    def layers_over(
        self, ids: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, exchange: Exchange,
        observer: Observer | None = None,
    ) -> torch.Tensor:
        observer = observer or self._layer_observer
        if len(ids) == 1 or self._apart(observer):
            return super().layers_over(ids, cos, sin, exchange, observer)
        x, layers, end = F.embedding(ids, self.embedding), self.layers, len(self.layers) - 1
        states = self.states(layers[0], x, cos, sin)
        for i, layer in enumerate(layers):
            attended = exchange(i, states, layer.kind)
            if i < end and (program := (part := self._between[i]).program) is not None:
                x, states = program([x, attended, cos, sin, *part.held])
            else:
                x = self.after_mlp(layer, layer.add_attention(x, attended))
                states = self.states(layers[i + 1], x, cos, sin) if i < end else states
            if observer is not None:
                observer.see_layer(i + 1, x)
        return x


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a layer's weights: names of norms, and which of its linear layers."""

    norms: tuple[str, ...]
    linears: slice

    def linears_of(self, layer: Layer) -> tuple[nn.Module, ...]:
        return layer.linears[self.linears]

    def held(self, layer: Layer) -> list[torch.Tensor]:
        """Its tensors."""
        found = [norm for name in self.norms if (norm := getattr(layer, name)) is not None]
        for one in self.linears_of(layer):
            found += [*one.held, *([] if one.bias is None else [one.bias.detach()])]
        return found

    def holding(self, layer: Layer, held: Iterator[torch.Tensor]) -> Layer:
        """A layer like this one, with the next tensors in place of its own."""
        norms = {name: next(held) for name in self.norms if getattr(layer, name) is not None}
        linears = list(layer.linears)
        linears[self.linears] = [
            one.holding([next(held) for _ in one.parts], None if one.bias is None else next(held))
            for one in self.linears_of(layer)
        ]
        return replace(layer, **norms, linears=tuple(linears))


_BEFORE = _Piece(("norm", "head_norms"), slice(0, 1))  # attention
_AFTER = _Piece(("mlp_norm",), slice(1, 4))


class _Part(nn.Module):
    """What a program computes, as a function of tensors alone.

    Attributes:
        rows: how many it is for, in words.
        done: share of loading that is done where it is compiled.
        several: whether it is for several rows.
        held: the weights that it is given.
        kind: what a program for it depends on.
        compiles: whether torch can compile it.
        program: None without one.
    """

    rows: str
    done: float
    several: bool

    def __init__(self, compute: LeanForward, *pieces: tuple[_Piece, Layer]) -> None:
        super().__init__()
        self.compute, self.layers, self.program = compute, [layer for _, layer in pieces], None
        linears = [one for piece, layer in pieces for one in piece.linears_of(layer)]
        self.compiles = all(isinstance(one, LaidOut) and one.compiles[self.several] for one in linears)
        self.held = [tensor for piece, layer in pieces for tensor in piece.held(layer)] if self.compiles else []
        sizes = [(tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) for tensor in self.held]
        kinds = [(layer.rope, layer.head_norms is not None) for layer in self.layers]
        self.kind = repr(([(type(one).__name__, one.bias is not None) for one in linears], sizes, kinds))

    def example(self) -> tuple[Any, ...]:
        """Arguments of ``forward``."""
        raise NotImplementedError

    def shapes(self) -> tuple[Any, ...]:
        """Which sizes of those are dynamic, as ``torch.export`` wants it."""
        raise NotImplementedError


class _Whole(_Part):
    """A layer over a single row: from the residual stream [1, width] before, cosines and sines [1, 1, head dim], the
    layer's rows of the KV buffer [2 kv heads, capacity, head dim], of which the last one seen is written, a mask
    [1, 1, 1, columns seen], and the weights, the stream after it."""

    rows, done, several = "one row", 0.9, False

    def __init__(self, compute: LeanForward, layer: Layer) -> None:
        super().__init__(compute, (_BEFORE, layer), (_AFTER, layer))

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor, mask: torch.Tensor,
        held: list[torch.Tensor],
    ) -> torch.Tensor:
        compute, given, columns = self.compute, iter(held), mask.shape[-1]
        layer = _AFTER.holding(_BEFORE.holding(self.layers[0], given), given)
        states, heads = compute.states(layer, x, cos, sin), compute.heads
        rows[:, columns - 1 : columns].copy_(states[0, :, heads:].transpose(0, 1))
        keys, values = rows[None, :, :columns].chunk(2, 1)
        attended = compute.attention(1, 0, mask)(states[:, :, :heads], keys, values, layer.kind)
        return compute.after_mlp(layer, layer.add_attention(x, attended))

    def example(self) -> tuple[Any, ...]:
        compute, width = self.compute, self.compute.embedding.shape[1]
        sizes = (1, width), *2 * ((1, 1, compute.head_dim),), (2 * compute.kv_heads, 512, compute.head_dim)
        return *(torch.zeros(size) for size in (*sizes, (1, 1, 1, 256))), self.held

    def shapes(self) -> tuple[Any, ...]:
        capacity, columns = (torch.export.Dim(name, min=2, max=_MOST) for name in ("capacity", "columns"))
        return None, None, None, {1: capacity}, {3: columns}, [None] * len(self.held)


class _Between(_Part):
    """What lies between the attentions of two layers: from the residual stream [rows, width] before, what attention
    gave [rows, width], cosines and sines [rows, 1, head dim], and the weights, the stream before the next attention,
    and its queries, keys and values."""

    rows, done, several = "several rows", 0.95, True

    def __init__(self, compute: LeanForward, this: Layer, after: Layer) -> None:
        super().__init__(compute, (_AFTER, this), (_BEFORE, after))

    def forward(
        self, x: torch.Tensor, attended: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, held: list[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        compute, given, (this, after) = self.compute, iter(held), self.layers
        this, after = _AFTER.holding(this, given), _BEFORE.holding(after, given)
        x = compute.after_mlp(this, this.add_attention(x, attended))
        return x, compute.states(after, x, cos, sin)

    def example(self) -> tuple[Any, ...]:
        compute, rows = self.compute, _EXAMPLE
        sizes = (rows, compute.embedding.shape[1]), (rows, compute.heads * compute.head_dim)
        return *(torch.zeros(size) for size in (*sizes, *2 * ((rows, 1, compute.head_dim),))), self.held

    def shapes(self) -> tuple[Any, ...]:
        return *4 * ({0: torch.export.Dim("rows", min=2, max=_MOST)},), [None] * len(self.held)


@cache
def _source() -> str:
    """Digest of the code that programs are made of."""
    files = [module.__file__ for module in (lean_forward, quantised_linear, weight_layouts)] + [__file__]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _compile(part: _Part, file: Path) -> None:
    """Compile into a file. What lies between products is so little that starting threads for it takes longer."""
    from torch._inductor import aoti_compile_and_package

    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(f".{os.getpid()}.pt2")
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(part, part.example(), dynamic_shapes=part.shapes())
            aoti_compile_and_package(program, package_path=str(half), inductor_configs={"cpp.threads": 1})
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)


def _opened(file: Path) -> Program:
    """A compiled program. Raises whatever torch does where there is none."""
    if not file.is_file():
        raise FileNotFoundError(file)
    return torch._C._aoti.AOTIModelPackageLoader(str(file), "model", False, 1, -1).boxed_run
