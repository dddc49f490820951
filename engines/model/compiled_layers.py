"""The lean forward with compiled layers: for a few rows, starting operations takes longer than what they compute.

A layer is some thirty operations, and between the products of its linear layers each of them does next to nothing. So
torch's compiler (Inductor, ahead of time) makes one function of all of them, whose weights and whose rows of the KV
buffer are its arguments, so that all layers share a program. There are two: for a single row, and for several.

Programs are native code, compiled in half a minute with the machine's C++ compiler and kept in the user's cache. They
compute what the lean forward computes, up to rounding, which the test of a loaded model checks. Forwards without some
sublayers, those whose sublayers are observed and those of strict mode, whose rows see others' columns, run as they do
without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from engines.errors import first_line
from engines.hub.download import Progress
from engines.machine import measured_file
from engines.model import lean_forward, quantised_linear, weight_layouts
from engines.model.kv_buffer import KVBuffer
from engines.model.lean_forward import Layer, LeanForward
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
        self.parts = {several: [_Part(self, layer, several) for layer in self.layers] for several in (False, True)}
        try:
            if self.embedding.dtype != torch.float32:
                raise ValueError("in half precision a compiled layer would round in other places than the model")
            if not any([self._compile(parts, progress) for parts in self.parts.values()]):
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
        facts = [part.several, part.kind, sizes, torch.get_num_threads(), _source()]
        file = measured_file("programs", facts).with_suffix(".pt2")
        with contextlib.suppress(Exception):  # not there, damaged, or of a machine that it does not run on
            return _opened(file)
        rows, done = ("several rows", 0.95) if part.several else ("one row", 0.9)
        progress(Loading(f"compiling layers for {rows}, once", done))
        _compile(part, file)
        return _opened(file)

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        n, observer = len(tokens), self._layer_observer
        columns, parts = cache.offset + n, self.parts[n > 1]
        if columns < 2 or any(self._without) or (observer is not None and observer.sublayers is not None):
            return super().run(tokens, positions, mask, cache, last_only)
        x = F.embedding(torch.tensor(tokens), self.embedding)
        (cos, sin), exchange = self.rotations(positions), self._over(cache, n, mask)
        rows = cache.pairs(self.kv_heads, self.head_dim, self.embedding).unbind(0)
        where = torch.arange(cache.offset, columns)
        seen = mask if isinstance(mask, dict) else dict.fromkeys(self.kinds, mask)
        seen = {kind: self._all(n, columns) if one is None else one for kind, one in seen.items()}
        for i, (layer, part) in enumerate(zip(self.layers, parts)):
            if part.program is not None:
                (x,) = part.program([x, cos, sin, rows[i], where, seen[layer.kind], *part.held])
            else:
                attended = exchange(i, self.states(layer, x, cos, sin), layer.kind)
                x = self.after_mlp(layer, layer.add_attention(x, attended))
            if observer is not None:
                observer.see_layer(i + 1, x)
        return self._wanted(x, last_only)

    def _all(self, rows: int, columns: int) -> torch.Tensor:
        """The mask [1, 1, rows, columns] that stands for none: of a row that sees all, or of the first ones."""
        if rows > 1:
            return self.embedding.new_full((1, 1, rows, columns), float("-inf")).triu_(1)
        if columns > self._seen.shape[-1]:
            self._seen = self.embedding.new_zeros(1, 1, 1, -(-2 * columns // _SEEN) * _SEEN)
        return self._seen[..., :columns]


class _Part(nn.Module):
    """A layer as a function of tensors alone, for a program.

    Attributes:
        several: whether it is for several rows.
        held: the weights that it is given.
        kind: what a program for it depends on.
        compiles: whether torch can compile it.
        program: None without one.
    """

    def __init__(self, compute: LeanForward, layer: Layer, several: bool) -> None:
        super().__init__()
        self.compute, self.layer, self.several, self.program = compute, layer, several, None
        self.compiles = all(isinstance(one, LaidOut) and one.compiles[several] for one in layer.linears)
        self.held = _tensors(layer) if self.compiles else []
        sizes = [(tuple(tensor.shape), tensor.stride(), str(tensor.dtype)) for tensor in self.held]
        linears = [(type(one).__name__, one.bias is not None) for one in layer.linears]
        self.kind = repr((linears, sizes, layer.rope, layer.head_norms is not None))

    def forward(
        self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, rows: torch.Tensor, where: torch.Tensor,
        mask: torch.Tensor, held: list[torch.Tensor],
    ) -> torch.Tensor:
        """The residual stream [n, width] after the layer.

        Args:
            x: the stream before it.
            cos, sin: [n, 1, head dim].
            rows: the layer's of the KV buffer [2 kv heads, capacity, head dim].
            where: int64 [n], which of these are written: the last ones seen.
            mask: [1, 1, n, columns seen].
            held: the weights.
        """
        compute, layer = self.compute, _holding(self.layer, iter(held))
        (n, columns), heads = mask.shape[2:], compute.heads
        states = compute.states(layer, x, cos, sin)
        rows.index_copy_(1, where, states[0, :, heads:].transpose(0, 1))
        keys, values = rows[None, :, :columns].chunk(2, 1)
        attended = compute.attention(n, 0, mask)(states[:, :, :heads], keys, values, layer.kind)
        return compute.after_mlp(layer, layer.add_attention(x, attended))

    def example(self) -> tuple[Any, ...]:
        """Arguments of ``forward``."""
        compute, n = self.compute, _EXAMPLE if self.several else 1
        sizes = (n, compute.embedding.shape[1]), *2 * ((n, 1, compute.head_dim),)
        buffer = 2 * compute.kv_heads, 512, compute.head_dim
        where = torch.arange(256 - n, 256)
        return *(torch.zeros(size) for size in (*sizes, buffer)), where, torch.zeros(1, 1, n, 256), self.held

    def shapes(self) -> tuple[Any, ...]:
        """Which sizes of those are dynamic, as ``torch.export`` wants it."""
        rows, capacity, columns = 3 * (torch.export.Dim.DYNAMIC(min=2, max=_MOST),)
        n = {0: rows} if self.several else None
        return n, n, n, {1: capacity}, n, {3: columns, **({2: rows} if self.several else {})}, [None] * len(self.held)


def _tensors(layer: Layer) -> list[torch.Tensor]:
    """All weights of a layer."""
    found = [layer.norm, layer.mlp_norm, *([] if layer.head_norms is None else [layer.head_norms])]
    for one in layer.linears:
        found += [*one.held, *([] if one.bias is None else [one.bias.detach()])]
    return found


def _holding(layer: Layer, held: Iterator[torch.Tensor]) -> Layer:
    """A layer like this one, of these ``_tensors``."""
    norm, mlp_norm, head_norms = next(held), next(held), None if layer.head_norms is None else next(held)
    linears = tuple(
        one.holding([next(held) for _ in one.parts], None if one.bias is None else next(held)) for one in layer.linears
    )
    return replace(layer, norm=norm, mlp_norm=mlp_norm, head_norms=head_norms, linears=linears)


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
    """A compiled program. Raises OSError, or whatever zipfile and torch do with a damaged one.

    torch's own loader unpacks it into a folder that stays when a process is ended at once; loaded code needs none.
    """
    with ZipFile(file) as package, TemporaryDirectory(dir=file.parent) as folder:
        code = Path(folder, "program.so")
        code.write_bytes(package.read(next(name for name in package.namelist() if name.endswith(".so"))))
        return torch._C._aoti.AOTIModelContainerRunnerCpu(str(code), 1).run
