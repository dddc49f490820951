"""The plain module of transformers, teacher-forced: its own masks, its own cache, nothing of the decoding path.

What is decoded here is checked against this: the KV buffer, tree masks, positions and accepted rows of the loop play no
part. Only the weights are shared, and how they lie in memory (``engines.model.native``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

import numpy as np
import torch

from engines.core.sampling import to_numpy
from engines.libraries.hf import Cache, ForwardCall, PreTrainedModel
from engines.model.causal_model import CausalModel
from engines.model.sublayers import layer_lists

LOGITS_BYTES = 512 << 20  # of one forward: 256k words of vocabulary still leave room for 500 rows
_FIXED_ROWS = 16  # a forward costs about as many rows as this before it has any
_REPORT_SECONDS = 0.1
_STEPS = (1, 8, 2, 4)  # rows a forward, as decoding has them
_SAMPLES = 8


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
    """How many rows of logits each forward of ``in_one_pass`` gives, so that none needs more memory than is sane.
    Mostly one forward has room for all."""
    most = max(1, LOGITS_BYTES // (model.vocab_size * (model.dtype.itemsize + 4)))
    return [min(most, rows - start) for start in range(0, rows, most)]


@torch.inference_mode()
def in_one_pass(
    model: CausalModel, tokens: Sequence[int], rows: int, cache: Cache, progress: AuditProgress
) -> Iterator[np.ndarray]:
    """Read a text once: in one forward, or where its logits would need too much memory, in several (``spans``).

    Args:
        tokens: the text, token ids.
        rows: of how many positions, the last ones, the logits are wanted.
        cache: an empty one of transformers' own, which takes in the text; a single forward reads nothing from it.

    Yields:
        float32 logits [n, vocabulary], the ``rows`` in order.

    Raises:
        AuditStopped: the caller of ``progress`` asked for an end.
    """
    done, end = 0, len(tokens) - rows
    for span in spans(model, rows):
        end += span
        where = torch.arange(done, end, device=model.device)[None] if done else None
        with _counting_layers(model.model, progress, cost(end - done)):
            logits = _logits(model, tokens[done:end], span, cache, where)
        done = end
        yield logits


def samples(rows: int) -> list[tuple[int, list[int]]]:
    """What ``read_again`` reads: where among the rows each sample begins, and the rows of its forwards, few at a time,
    as decoding has them. Samples are spread over the rows; those of a short text are all of it."""
    cycle = sum(_STEPS)
    count = max(1, min(_SAMPLES, -(-rows // cycle)))
    found = []
    for number in range(count):
        start = number * cycle if rows <= count * cycle else number * (rows - cycle) // (count - 1)
        left, sizes = min(cycle, rows - start), []
        for size in _STEPS:
            sizes += [min(size, left)] if left else []
            left -= min(size, left)
        found.append((start, sizes))
    return found


@torch.inference_mode()
def read_again(
    model: CausalModel, tokens: Sequence[int], rows: int, cache: Cache, progress: AuditProgress
) -> Iterator[tuple[int, np.ndarray]]:
    """Some of the rows once more by other sums: a few at a time, over what ``in_one_pass`` has left in the ``cache``.

    Yields:
        (the first row's place among the ``rows``, float32 logits [n, vocabulary]), the last sample first.

    Raises:
        AuditStopped: the caller of ``progress`` asked for an end.
    """
    before, held = len(tokens) - rows, len(tokens)
    for start, sizes in reversed(samples(rows)):
        cache.crop(before + start - held)  # negative: so many rows from its end
        held = before + start + sum(sizes)
        for size in sizes:
            first = before + start
            where = torch.arange(first, first + size, device=model.device)[None]
            with _counting_layers(model.model, progress, cost(size)):
                logits = _logits(model, tokens[first : first + size], size, cache, where)
            yield start, logits
            start += size


def work(model: CausalModel, length: int, rows: int) -> float:
    """What reading a text, and the samples again, costs, in rows."""
    again = sum(cost(size) for _, sizes in samples(rows) for size in sizes)
    return length + _FIXED_ROWS * len(spans(model, rows)) + again


def _logits(
    model: CausalModel, tokens: Sequence[int], rows: int, cache: Cache, positions: torch.Tensor | None = None,
) -> np.ndarray:
    """float32 logits [rows, vocabulary] of the last rows of one forward."""
    ids = torch.tensor([list(tokens)], device=model.device)
    logits = ForwardCall(model.model)(ids, cache, positions, last=rows)
    return to_numpy(logits[0, -rows:])


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
