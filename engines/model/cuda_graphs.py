"""The lean forward as CUDA graphs: a GPU computes a few rows faster than the host can start the operations for them.

Shapes are few: rows are padded to the next of ``ROWS``, columns to the next power of two. For each pair there is a
program over fixed buffers (token ids, positions, places to write, masks, outputs), recorded at first use and replayed
from then on. Everything that changes from call to call goes into those buffers, from pinned memory and without waiting,
so a round waits for the device once, when its logits are read. Rows of padding write after the rows in use, where the
next ones will be written, and see the first column.

Hidden states by layer come from programs that copy them out: one for each set of layers that is asked for. Longer
texts, forwards without some sublayers, and those whose sublayers are observed one by one run as they come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import torch

from engines.errors import first_line
from engines.libraries.hf import PreTrainedModel
from engines.model.kv_buffer import KVBuffer
from engines.model.lean_forward import LeanForward
from engines.model.masks import Mask, moved

ROWS = (1, 2, 4, 8, 16, 32, 64)
_COLUMNS = 256  # the fewest
_AT_ONCE = 4096  # rows of the buffer that are reserved at first use: when it grows all is recorded anew
_PROGRAMS = 32  # kept; the least recently used one goes
_WARM_UPS = 2

Program = Callable[[], None]
Capture = Callable[[Program], Program]
"""Runs a program to warm up, records what it does to its buffers, and returns what does the same again."""


class CudaCapture:
    """Records CUDA graphs on a stream of their own; all share one pool of memory, since no two run at once."""

    def __init__(self, device: torch.device) -> None:
        self._stream, self._pool = torch.cuda.Stream(device), torch.cuda.graph_pool_handle()

    def __call__(self, program: Program) -> Program:
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):  # libraries choose kernels and take their memory, which cannot be recorded
                program()
        torch.cuda.current_stream(stream.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"):
            program()
        return graph.replay


class _Shape:
    """Fixed buffers of a program, and its replay; as an ``Observer`` it copies streams out of the program.

    Attributes:
        numbers: int64 [3, rows]: token ids, positions, places in the KV buffer.
        masks: by kind of layer, additive [1, 1, rows, columns].
        logits, last: what it leaves, [rows, vocabulary] and, after the final norm, [rows, width].
        streams: the residual stream [rows, width] after some layers, counted from 1.
        tables: of cosines and sines, which it reads: a graph knows addresses and keeps no tensor, and the forward
            replaces its tables by longer ones.
    """

    def __init__(self, forward: CudaGraphForward, rows: int, columns: int, layers: frozenset[int]) -> None:
        like = forward.like
        self.rows, self.columns = rows, columns
        self.numbers = torch.zeros(3, rows, dtype=torch.int64, device=like.device)
        self.masks = {kind: like.new_zeros(1, 1, rows, columns) for kind in forward.kinds}
        self.logits, self.last = like.new_zeros(rows, forward.vocab_size), like.new_zeros(rows, forward.width)
        self.streams = {layer: like.new_zeros(rows, forward.width) for layer in layers}
        self.tables: tuple[torch.Tensor, ...] = ()
        self.replay: Program | None = None

    def see_layer(self, layer: int, stream: torch.Tensor) -> None:
        if layer in self.streams:
            self.streams[layer].copy_(stream)

    def see_sublayer(self, before: torch.Tensor, after: torch.Tensor) -> None:
        pass


class CudaGraphForward(LeanForward):
    """The ``Forward`` of Llama-like models on a GPU. ``capture``: how programs are recorded. ``failure``: why nothing
    is recorded any more, "" while all is well."""

    name = "lean, CUDA graphs"
    host_masks = True
    failure = ""

    def __init__(self, model: PreTrainedModel, capture: Capture | None = None) -> None:
        super().__init__(model)
        self._capture = capture or CudaCapture(self.like.device)
        self._shapes: OrderedDict[tuple[int, int, frozenset[int]], _Shape] = OrderedDict()
        self._store: torch.Tensor | None = None  # the programs' KV buffer
        self._positions = max(1, getattr(model.config, "max_position_embeddings", 0) or 0)
        self.vocab_size: int = model.config.vocab_size

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        observer, rows = self._observer, len(tokens)
        by_sublayer = observer is not None and observer.sublayers is not None
        if self.failure or rows > ROWS[-1] or by_sublayer or any(self._without):
            return super().run(tokens, positions, moved(mask, self.like.device), cache, last_only)
        shape = self._shape(rows, cache, observer.layers if observer is not None else frozenset())
        self._fill(shape, tokens, positions, mask, cache.offset)
        try:
            if shape.replay is None:
                shape.replay = self._capture(self._program(shape, cache))
            shape.replay()
        except RuntimeError as error:  # drivers and libraries differ in what they let be recorded
            self.failure, self.name = first_line(error), f"{LeanForward.name}, no CUDA graphs"
            self._drop()
            return super().run(tokens, positions, moved(mask, self.like.device), cache, last_only)
        if observer is not None:
            for layer, stream in shape.streams.items():
                observer.see_layer(layer, stream[:rows].clone())
            if observer.last:
                observer.see_last(shape.last[:rows].clone())
        return shape.logits[rows - 1 if last_only else 0 : rows].clone()

    def _shape(self, rows: int, cache: KVBuffer, layers: frozenset[int]) -> _Shape:
        """The buffers for so many rows after those in the cache; all are new where the cache has moved."""
        padded = next(size for size in ROWS if size >= rows)
        columns = max(_COLUMNS, 1 << (cache.offset + rows - 1).bit_length())
        cache.reserve(max(columns, cache.offset + padded, min(_AT_ONCE, self._positions)))
        store = cache.store(self.kv_heads, self.head_dim, self.like)
        if store is not self._store:
            self._store = store
            self._drop()
        key = (padded, columns, layers)
        shape = self._shapes[key] = self._shapes.pop(key, None) or _Shape(self, *key)
        if len(self._shapes) > _PROGRAMS:
            self._drop(next(iter(self._shapes)))
        return shape

    def _drop(self, which: tuple[int, int, frozenset[int]] | None = None) -> None:
        """Forget the programs of a shape, or all, once none of them runs."""
        if self.like.device.type == "cuda":
            torch.cuda.synchronize(self.like.device)
        if which is None:
            self._shapes.clear()
        else:
            del self._shapes[which]

    def _fill(self, shape: _Shape, tokens: Sequence[int], positions: Sequence[int], mask: Mask, start: int) -> None:
        """Put what a call is about into the buffers; copies of the first row fill them up."""
        rows, more = len(tokens), shape.rows - len(tokens)
        numbers = [
            [*tokens, *[tokens[0]] * more], [*positions, *[positions[0]] * more], [*range(start, start + shape.rows)],
        ]
        _send(torch.tensor(numbers, device="cpu"), shape.numbers)
        if mask is None:
            mask = _causal(rows, start + rows, self.like.dtype)
        lowest = torch.finfo(self.like.dtype).min
        for kind, there in shape.masks.items():
            one = mask[kind] if isinstance(mask, dict) else mask
            padded = torch.full(there.shape, lowest, dtype=there.dtype, device="cpu")
            padded[..., :rows, : one.shape[-1]] = one
            padded[..., rows:, 0] = 0
            _send(padded, there)

    def _program(self, shape: _Shape, cache: KVBuffer) -> Program:
        """What a call does, over fixed buffers only: nothing in it may depend on what the host knows when it runs."""
        if shape.columns > len(self._cos):
            self._grow(shape.columns)
        shape.tables = cos, sin = self._cos, self._sin
        heads, pairs = self.heads, cache.pairs(self.kv_heads, self.head_dim, self.like)
        seen = self._store[..., : shape.columns, :].unbind(0)
        ids, where, places = shape.numbers.unbind(0)

        def program() -> None:
            attend = self._by_products(shape.rows, shape.masks)

            def exchange(i, states, kind):
                pairs[i].index_copy_(1, places, states[0, :, heads:].transpose(0, 1))
                return attend(states[:, :, :heads], seen[2 * i], seen[2 * i + 1], kind)

            x = self.norm(self.layers_over(ids, cos[where], sin[where], exchange, shape), self.final_norm)
            shape.last.copy_(x)
            shape.logits.copy_(self.logits(x))

        return program

    def _by_products(self, rows: int, masks: Mapping[str, torch.Tensor]) -> Callable:
        """As ``attention``, by two products of matrices: a kernel that goes through the columns block by block has as
        many blocks at once as there are heads, which leaves most of a GPU idle while rows are few."""
        groups, dim, kv_heads = self.heads // self.kv_heads, self.head_dim, self.kv_heads
        tall = {kind: one[0].float().repeat(1, groups, 1).expand(kv_heads, -1, -1) for kind, one in masks.items()}

        def attend(queries, keys, values, kind):
            q = queries.view(rows, kv_heads, groups, dim).permute(1, 2, 0, 3).reshape(kv_heads, groups * rows, dim)
            weights = _scores(tall[kind], q, keys[0].transpose(1, 2), self.scale).softmax(-1)
            out = torch.bmm(weights.to(values.dtype), values[0])
            return out.view(kv_heads, groups, rows, dim).permute(2, 0, 1, 3).reshape(rows, -1)

        return attend


def _scores(mask: torch.Tensor, queries: torch.Tensor, keys: torch.Tensor, scale: float) -> torch.Tensor:
    """float32 [heads, rows, columns] of queries [heads, rows, dim] and keys [heads, dim, columns], the mask added."""
    if queries.device.type == "cuda" and queries.dtype != torch.float32:
        return torch.baddbmm(mask, queries, keys, alpha=scale, out_dtype=torch.float32)
    return torch.baddbmm(mask, queries.float(), keys.float(), alpha=scale)


def _causal(rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """What plain text sees, [rows, columns]."""
    hidden = torch.ones(rows, columns, dtype=torch.bool, device="cpu").triu_(columns - rows + 1)
    return torch.zeros(rows, columns, dtype=dtype, device="cpu").masked_fill_(hidden, torch.finfo(dtype).min)


def _send(host: torch.Tensor, there: torch.Tensor) -> None:
    """Copy without waiting for the device: torch keeps pinned memory until its copies are done."""
    if there.device.type == "cuda":
        host = host.pin_memory()
    there.copy_(host, non_blocking=True)
