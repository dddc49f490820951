"""Timing passes of several sizes so that what else the machine does falls on all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

from engines.cost.curve import CostCurve

ROWS = (1, 16, 4, 2, 8, 64, 32)  # the order in which a slow model gets to them
_MANY = 16  # rows: what takes longer is timed where half of the time is left
_AT_LEAST = 3  # of them, however slow the model
REPEATS = 7


def sample(timed: Callable[[int], float], seconds: float, sizes: Sequence[int] = ROWS) -> CostCurve:
    """t(n) by the best time of each size, interleaved, for about this many seconds: what the machine can do, whatever
    else it is doing. A slow model gets few passes of a few sizes.

    Args:
        timed: the seconds of one pass over so many rows.
        sizes: numbers of rows, each passed ``REPEATS`` times where there is time.
    """
    samples: dict[int, list[float]] = {}
    clock = perf_counter()
    for repeat in range(REPEATS):
        for rows in sizes:
            spent = perf_counter() - clock
            if repeat > 0 or len(samples) >= min(_AT_LEAST, len(sizes)):
                if spent > seconds:
                    break
                if rows > _MANY and spent > seconds / 2:
                    continue
            samples.setdefault(rows, []).append(timed(rows))
    return CostCurve.fit((rows, min(times)) for rows, times in samples.items())
