"""How many threads, and which layout of the linear layers: decided by a measurement at load, a fraction of a second.

Small models are bound by the cost of starting operations, and a second thread mostly waits to be woken; large ones by
memory bandwidth, where all threads pay. More threads are taken only where they gain a fifth: a run on several threads
is as slow as the core that something else is using.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import nn

from engines.target.layouts import LAYOUTS, available, lay_out

_THREADS_MUST_GAIN = 0.8
_LAYOUT_MUST_GAIN = 0.95
_REPEATS = 5
_ROWS = (1, 8)  # one row: autoregressive decoding and drafting; several: verification
_SAMPLE_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a forward outside its linear layers, and of those in each layout ("plain" as loaded)."""

    rest: float
    linears: dict[str, float]

    @property
    def layout(self) -> str:
        """The fastest layout; plain unless another gains enough."""
        best = min(self.linears, key=self.linears.__getitem__)
        return best if self.linears[best] < _LAYOUT_MUST_GAIN * self.linears["plain"] else "plain"

    @property
    def total(self) -> float:
        return self.rest + self.linears[self.layout]


def tune(model: nn.Module, threads: int | None = None) -> str:
    """Set torch's thread count and lay out the model's linear layers as is fastest.

    Args:
        model: a causal language model of transformers on the CPU.
        threads: a count to keep; None measures one thread against torch's own default, unless OMP_NUM_THREADS is set.

    Returns:
        The back end in words.
    """
    default = threads or torch.get_num_threads()
    candidates = [default]
    if not threads and "OMP_NUM_THREADS" not in os.environ and default > 1:
        candidates.insert(0, 1)
    layouts = [name for name in LAYOUTS if available(name, model.dtype)]
    costs = {count: measure(model, count, layouts) for count in candidates}
    chosen = candidates[0]
    for count in candidates[1:]:
        if costs[count].total < _THREADS_MUST_GAIN * costs[chosen].total:
            chosen = count
    torch.set_num_threads(chosen)
    layout = costs[chosen].layout
    if layout == "plain":
        return "generic"
    lay_out(model, layout)
    return f"generic, {layout} linear layers"


def measure(model: nn.Module, threads: int, layouts: list[str]) -> Cost:
    """What a forward costs on this many threads."""
    torch.set_num_threads(threads)
    row = torch.zeros(1, 1, dtype=torch.long)
    forward = _time(lambda: model(input_ids=row, use_cache=False))
    linears, share = _sample(model)
    alone = _time(lambda: _each(linears, 1, model.dtype)) / share
    costs = {"plain": _mean(linears, share, model.dtype)}
    for layout in layouts:
        with torch.inference_mode():
            copies = [LAYOUTS[layout](linear) for linear in linears]
        costs[layout] = _mean(copies, share, model.dtype)
    return Cost(max(forward - alone, 0.0), costs)


def _sample(model: nn.Module) -> tuple[list[nn.Linear], float]:
    """Linear layers of the model, one after the other until they are too large for any cache (weights that stay in one
    would time nothing but the call), and the share of all linear weights that they are."""
    linears = [m for m in model.modules() if type(m) is nn.Linear]
    total = sum(m.weight.nbytes for m in linears)
    chosen, size = [], 0
    for linear in linears:
        chosen.append(linear)
        size += linear.weight.nbytes
        if size > _SAMPLE_BYTES:
            break
    return chosen, size / max(total, 1) or 1.0


def _mean(linears: list[nn.Module], share: float, dtype: torch.dtype) -> float:
    """Seconds of all linear layers, averaged over the row counts that decoding has."""
    return sum(_time(lambda rows=rows: _each(linears, rows, dtype)) for rows in _ROWS) / len(_ROWS) / share


def _each(linears: list[nn.Module], rows: int, dtype: torch.dtype) -> None:
    inputs: dict[int, torch.Tensor] = {}
    for linear in linears:
        width = linear.in_features
        if width not in inputs:
            inputs[width] = torch.zeros(1, rows, width, dtype=dtype)
        linear(inputs[width])


@torch.inference_mode()
def _time(call: Callable[[], object]) -> float:
    """The best of a few calls after one that warms up: what the machine can do, whatever else it is doing."""
    call()
    best = float("inf")
    for _ in range(_REPEATS):
        clock = perf_counter()
        call()
        best = min(best, perf_counter() - clock)
    return best
