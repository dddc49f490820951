"""How many threads a model is computed on: decided by a measurement when it is first loaded, and kept in a file.

Small models are bound by the cost of starting operations, and a second thread mostly waits to be woken; large ones by
memory bandwidth, where all threads pay. More threads are taken only where they gain a tenth: a run on several threads
is as slow as the core that something else is using. The measurement runs under the waiting policy of the process, which
libgomp reads once, when torch is loaded, and on the machine as busy as it is: with a neighbour, one thread wins.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from engines.libraries.hf import PreTrainedModel
from engines.machine import OtherLoad, keep, kept, measured_file

_THREADS_MUST_GAIN = 0.9
_SCREEN_MUST_GAIN = 0.7  # those that a screen draws on, too, and slows down meanwhile
_LONG = 0.03  # seconds of a forward: what a screen takes of it hardly matters
_REPEATS, _SECONDS = 5, 0.5  # of each forward on each number of threads; seconds after which there are no more repeats
_ROWS = (1, 8)  # one row: autoregressive decoding and drafting; several: verification
_DAYS = 30  # that it is kept
_replaced: dict[int, int] = {}  # the count that was set here last, and torch's own count

Forward = Callable[[int], object]
"""Sends so many rows through a model."""


def tune_once(
    model: PreTrainedModel, forward: Callable[[], Forward | None], facts: list[Any], threads: int | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> None:
    """``tune``, or what it found for this model the last time: then nothing is measured. It is kept only of a machine
    with nothing else to do, and measured again some time later. A number that the user has chosen is set.

    Args:
        model: a causal language model of transformers on the CPU, as it will be computed.
        forward: makes the function to measure, None where it fails; it is made only to be measured.
        facts: what its time depends on beside its configuration, as plain data.
        threads: the user's number; None or a negative one as of ``tune``.
        progress: as of ``tune``.
    """
    own = own_threads()
    given = threads is not None and threads > 0
    if given or "OMP_NUM_THREADS" in os.environ:
        return use_threads(threads if given else own)
    file = measured_file("tunings", [settings_of(model), str(model.dtype), facts, own, threads])
    found = kept(file)
    if type(found) is int and 1 <= found <= own:
        return use_threads(found)
    other_load = OtherLoad()
    tune(forward() or (lambda rows: model(input_ids=torch.zeros(1, rows, dtype=torch.long), use_cache=False)),
         threads, progress)
    if other_load.quiet():
        keep(file, torch.get_num_threads(), _DAYS)


def tune(forward: Forward, threads: int | None = None, progress: Callable[[float], None] = lambda done: None) -> None:
    """Set torch's thread count as is fastest.

    Args:
        forward: what is measured.
        threads: None measures 1, 2, 4, ... up to torch's own default, as long as each gains enough over the one before.
            A negative number leaves so many of the default to whatever else runs (a screen that draws), unless a
            forward is long or they gain much.
        progress: told the share that is done.
    """
    default = own_threads()
    free, counts = default + (threads or 0), _counts(default)
    chosen, best = counts[0], None
    for number, count in enumerate(counts):
        seconds = measure(forward, count)
        progress((number + 1) / len(counts))
        must_gain = _THREADS_MUST_GAIN
        if best is not None and count > free and best < _LONG:
            must_gain = _SCREEN_MUST_GAIN
        if best is not None and seconds >= must_gain * best:
            break
        chosen, best = count, seconds
    use_threads(chosen)


def own_threads() -> int:
    """The number of threads that torch would take, whatever was found for a model before."""
    return _replaced.get(torch.get_num_threads(), torch.get_num_threads())


def use_threads(count: int) -> None:
    """Set torch's number of threads, for a model."""
    own = own_threads()
    torch.set_num_threads(count)
    _replaced.clear()
    _replaced[count] = own


def settings_of(model: PreTrainedModel) -> dict[str, Any]:
    """Its configuration, before the weights are read ("_name_or_path" is another then) and after."""
    found = model.config.to_dict().items()
    return {name: value for name, value in found if not name.startswith("_") and name != "dtype"}


def _counts(most: int) -> list[int]:
    return [*(1 << n for n in range(most.bit_length()) if 1 << n < most), most]


@torch.inference_mode()
def measure(forward: Forward, threads: int) -> float:
    """Mean seconds of a forward over one row and over several, on this many threads: the best of a few of each, after
    one that warms up."""
    use_threads(threads)
    best, begun = dict.fromkeys(_ROWS, float("inf")), perf_counter()
    for repeat in range(_REPEATS + 1):
        for rows in _ROWS:
            clock = perf_counter()
            forward(rows)
            if repeat:
                best[rows] = min(best[rows], perf_counter() - clock)
        if repeat and perf_counter() - begun > _SECONDS:
            break
    return sum(best.values()) / len(best)
