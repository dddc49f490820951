"""The plain module of transformers, teacher-forced: its own masks, its own cache or none, nothing of the decoding path.

What is decoded here is checked against this: the KV buffer, tree masks, positions and accepted rows of the loop play no
part. Only the weights are shared, and how they lie in memory (``weight_layouts``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from time import perf_counter

import numpy as np
import torch

from engines.core.sampling import to_numpy
from engines.libraries.hf import Cache, ForwardCall, PreTrainedModel, growing_cache
from engines.model.causal_model import CausalModel
from engines.model.sublayers import layer_lists
from engines.model.weight_layouts import LaidOut

_LOGITS_BYTES = 512 << 20  # of one forward: 256k words of vocabulary still leave room for 500 rows
_FIXED_ROWS = 16  # a forward costs about as many rows as this before it has any
_REPORT_SECONDS = 0.1
_STEPS = (1, 8, 2, 4)  # rows a forward, as decoding has them
_STEP_FORWARDS = 32


class AuditStopped(Exception):
    """The caller asked for an end."""


class AuditProgress:
    """Progress of a known amount of work, and whether to go on with it.

    Args:
        total: all of the work, in rows (``cost``).
        cancelled: asked at every layer.
        progress: told the share that is done, about ten times a second.
    """

    def __init__(self, total: float, cancelled: Callable[[], bool], progress: Callable[[float], None]) -> None:
        self._total, self._cancelled, self._progress = total, cancelled, progress
        self._done = 0.0
        self._reported = perf_counter()

    def add(self, work: float) -> None:
        """Count work that is done. Raises AuditStopped: the caller asked for an end."""
        self._done += work
        if self._cancelled():
            raise AuditStopped
        now = perf_counter()
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._progress(min(1.0, self._done / self._total))


def cost(rows: int) -> float:
    """What a forward of so many rows costs, in rows."""
    return _FIXED_ROWS + rows


def spans(model: CausalModel, rows: int) -> list[int]:
    """How many rows of logits each forward of ``without_cache`` gives, so that none needs more memory than is sane.
    Mostly one forward has room for all; else the text is read again up to the end of each span."""
    most = max(1, _LOGITS_BYTES // (model.vocab_size * (model.dtype.itemsize + 4)))
    return _split(rows, most)


@torch.inference_mode()
def without_cache(
    model: CausalModel, tokens: Sequence[int], rows: int, progress: AuditProgress
) -> Iterator[np.ndarray]:
    """Read a text in one forward (see ``spans``), without any cache.

    Args:
        tokens: the text, token ids.
        rows: of how many positions, the last ones, the logits are wanted.

    Yields:
        float32 logits [n, vocabulary], the ``rows`` in order.

    Raises:
        AuditStopped: the caller of ``progress`` asked for an end.
    """
    end = len(tokens) - rows
    for span in spans(model, rows):
        end += span
        with _counting_layers(model.model, progress, cost(end)):
            logits = _logits(model, tokens[:end], span)
        yield logits


def steps(rows: int, most: int) -> list[int]:
    """Rows of each forward of ``stepwise``: few at a time, as decoding has them, in up to ``_STEP_FORWARDS`` forwards
    spread over the text; what is between them goes in larger ones of at most ``most`` rows."""
    cycle = sum(_STEPS)
    cycles = max(1, min(_STEP_FORWARDS // len(_STEPS), -(-rows // cycle)))
    filler, left = max(0, rows - cycles * cycle), rows
    sizes: list[int] = []
    for number in range(cycles):
        share = filler * (number + 1) // cycles - filler * number // cycles
        for size in (*_STEPS, *_split(share, most)):
            size = min(size, left)
            sizes += [size] if size else []
            left -= size
    return sizes


@torch.inference_mode()
def stepwise(model: CausalModel, tokens: Sequence[int], rows: int, progress: AuditProgress) -> Iterator[np.ndarray]:
    """The same as ``without_cache`` by other sums: the text before the rows in one forward, then a few rows at a time,
    over a cache of transformers' own."""
    cache, done = growing_cache(), 0
    before = len(tokens) - rows
    for size in (*((before,) if before else ()), *steps(rows, spans(model, rows)[0])):
        where = torch.arange(done, done + size, device=model.device)[None]
        wanted = 1 if done < before else size
        with _counting_layers(model.model, progress, cost(size)):
            logits = _logits(model, tokens[done : done + size], wanted, cache, where)
        done += size
        if done > before:
            yield logits


def work(model: CausalModel, length: int, rows: int) -> float:
    """What reading a text both ways costs, in rows."""
    ends = np.cumsum(spans(model, rows)) + length - rows
    few = steps(rows, spans(model, rows)[0])
    return sum(cost(int(end)) for end in ends) + sum(cost(size) for size in few) + cost(length - rows)


def _logits(
    model: CausalModel, tokens: Sequence[int], rows: int, cache: Cache | None = None,
    positions: torch.Tensor | None = None,
) -> np.ndarray:
    """float32 logits [rows, vocabulary] of the last rows of one forward."""
    ids = torch.tensor([list(tokens)], device=model.device)
    with _whole_products(model.model):
        logits = ForwardCall(model.model)(ids, cache, positions, last=rows)
    return to_numpy(logits[0, -rows:])


@contextmanager
def _whole_products(module: PreTrainedModel) -> Iterator[None]:
    """Inside, slices of a quantised layer (queries, keys and values; gate and up) that read the same input one after
    the other share its product: such a layer computes all of its outputs whichever are wanted."""
    laid = [layer for layer in module.modules() if isinstance(layer, LaidOut) and layer.quantised]
    layer_of, read, made = None, None, None

    def part(layer: LaidOut, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        nonlocal layer_of, read, made
        if layer_of is not layer or read is not x:
            layer_of, read, made = layer, x, layer(x)
        return made[..., start:end]

    for layer in laid:
        layer.part = partial(part, layer)
    try:
        yield
    finally:
        for layer in laid:
            del layer.part


def _split(count: int, most: int) -> list[int]:
    """``count`` in parts of at most ``most``."""
    return [min(most, count - start) for start in range(0, count, most)]


@contextmanager
def _counting_layers(module: PreTrainedModel, progress: AuditProgress, work: float) -> Iterator[None]:
    """Tell ``progress`` at every decoder layer: one forward of a large model over a long text may take minutes."""
    layers = next(iter(layer_lists(module)), [])
    share = work / (len(layers) + 1)
    hooks = [layer.register_forward_pre_hook(lambda *_: progress.add(share)) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    progress.add(share)
