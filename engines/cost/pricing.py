"""t(n) of a model on this machine: measured at load in a fraction of a second, kept in a file for the next time.

A run under the rejection law depends on what is drafted, and that on the price: so there is a curve for it that stays
(``fixed_price``), and a seed repeats its run, from the first measurement on a quiet machine on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import torch

from engines.cost.curve import CostCurve
from engines.cost.interleaved import REPEATS, ROWS, sample
from engines.machine import OtherLoad, keep, kept, measured_file
from engines.model.kv_buffer import KVBuffer
from engines.model.selftest import code_digest

_SECONDS = 0.3
_CONTEXT = 192  # rows in the cache meanwhile
_LONG_CONTEXT = 2048  # rows, to tell what reading them takes
_DAYS, _BUSY_DAYS = 30, 1  # that a curve is kept: measured on a quiet machine, and on another
_PROBED = (1, 8)  # rows, to tell whether a busy machine is less busy now
_FASTER = 0.8  # of the time of a pass on a busy machine: that much less tells that it is less busy now


class Priced(Protocol):
    """What a price is measured of: a ``CausalModel``, or a draft head. ``settings``: what its time depends on beside
    its size, as plain data; the others are as of ``CausalModel``."""

    settings: dict[str, Any]
    parameters: int
    dtype: torch.dtype
    device: torch.device
    quantised: str
    rounds: bool
    weight_bytes: int
    backend: str
    context_limit: int
    cache: KVBuffer

    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """Logits of pending rows."""

    def drop(self) -> None:
        """Forget them."""

    def truncate(self, length: int) -> None:
        """Forget all rows from there on."""

    def synchronize(self) -> None:
        """Wait for the device."""


def price(model: Priced, fresh: bool = False, beside: tuple[Priced, CostCurve] | None = None) -> CostCurve:
    """t(n) of a model whose cache is empty: as kept, or measured and kept. A curve of a busy machine is measured anew
    the next day, or where a pass of a few rows takes clearly less by now; until then, and later, the rounds of a run
    correct it (``forward_times``).

    Args:
        fresh: measure in any case.
        beside: of a drafter, the target and its t(n) as it is known. What counts is a drafter's share of a pass of the
            target: both are timed now, and a machine that is busier or slower than it was when the target's curve was
            measured changes nothing.
    """
    file = _file(model, [torch.get_num_threads(), model.backend, code_digest()])
    known = None if fresh else _read(file)
    if known is not None and not (known.busy and _faster(measure(model, sizes=_PROBED), known)):
        return known
    other_load, curve = OtherLoad(), measure(model)
    if beside is not None:
        target, before = beside
        now = measure(target, sizes=(1,))
        curve = curve.scaled(before.at(1) / now.at(1))
    curve = replace(curve, busy=not other_load.quiet())
    _keep(file, curve, _BUSY_DAYS if curve.busy else _DAYS)
    return curve


def _faster(now: CostCurve, before: CostCurve) -> bool:
    return any(now.at(rows) < _FASTER * before.at(rows) for rows, _ in now.points)


def fixed_price(model: Priced, measured: CostCurve, fresh: bool = False) -> CostCurve:
    """The curve that sizes are decided by where the text depends on them: the first that was measured for this model
    and dtype while this machine was quiet, whatever threads and layout were found best then or since.

    Until there is one, it is the first of a busy machine. So a seed repeats its run from one start to the next but for
    once, when the first quiet curve replaces a busy one; a busy one that stayed would choose wrong sizes for good.

    Args:
        measured: taken, and kept, where there is none, or where it is the first quiet one.
        fresh: take ``measured`` in any case.
    """
    file = _file(model, [])
    known = None if fresh else _read(file)
    if known is not None and (measured.busy or not known.busy):
        return known
    _keep(file, measured)
    return measured


def reading(model: Priced, repeats: int = REPEATS) -> tuple[float, int]:
    """Seconds that a pass takes longer for each token of context, whose keys and values it reads, and the tokens of
    context that t(n) is measured with. 0 seconds where the model's context has no room for a difference; leaves the
    cache empty."""
    limit = max(1, model.context_limit - 1)
    short, long = min(_CONTEXT, limit - 1), min(_LONG_CONTEXT, limit - 1)
    if long <= 2 * short:
        return 0.0, short
    model.truncate(0)
    model.forward([0], [-1])
    model.drop()
    model.cache.reserve(long + 1)
    best = dict.fromkeys((short, long), float("inf"))
    try:
        for context in (short, long) * (repeats + 1):  # the first of each warms up
            model.cache.length = context
            best[context] = min(best[context], _time(model, 1))
    finally:
        model.truncate(0)
    return max(0.0, (best[long] - best[short]) / (long - short)), short


def measure(model: Priced, seconds: float = _SECONDS, sizes: Sequence[int] = ROWS) -> CostCurve:
    """Time forwards over chains of these many rows, as ``sample`` does; leaves the cache empty. The context is rows of
    zeros, which cost what any rows cost."""
    limit = max(1, model.context_limit - 1)
    sizes = [rows for rows in sizes if rows <= limit]
    model.truncate(0)
    model.forward([0], [-1])  # allocates, and warms up
    model.drop()
    model.cache.reserve(_CONTEXT + max(sizes))
    model.cache.length = max(0, min(_CONTEXT, limit - max(sizes)))
    for rows in sizes if model.device.type == "cuda" else ():  # each shape is recorded at first use
        _time(model, rows)
    try:
        return sample(lambda rows: _time(model, rows), seconds, sizes)
    finally:
        model.truncate(0)


def _time(model: Priced, rows: int) -> float:
    model.synchronize()
    clock = perf_counter()
    model.forward([0] * rows, list(range(-1, rows - 1)))
    model.synchronize()
    seconds = perf_counter() - clock
    model.drop()
    return seconds


def _file(model: Priced, also: list[object]) -> Path:
    """Where t(n) of the model's shape and dtype is kept; ``also`` what else it depends on."""
    device = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else ""
    facts = [model.settings, model.parameters, str(model.dtype), model.device.type, device, model.quantised]
    facts += [model.rounds, model.weight_bytes, *also]
    return measured_file("costs", facts)


def _keep(file: Path, curve: CostCurve, days: float | None = None) -> None:
    keep(file, {"busy": curve.points} if curve.busy else curve.points, days)


def _read(file: Path) -> CostCurve | None:
    """The curve that is kept."""
    value = kept(file)
    busy = isinstance(value, dict)
    try:
        points = value["busy"] if busy else value
        return replace(CostCurve.fit((int(rows), float(seconds)) for rows, seconds in points), busy=busy)
    except (ValueError, TypeError, KeyError):
        return None
