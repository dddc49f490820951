"""t(n) of a model on llama.cpp's server, by what the server says that it took to read n new tokens.

A prompt whose beginning the server keeps, and n tokens more, of which one token is wanted: ``timings`` of the answer
says how many tokens were read anew (``prompt_n``) and in what time (``prompt_ms``). A verification step of n rows
computes the scores of them all, this of the last alone; else it is the same pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from time import perf_counter
from typing import Any

from engines.cost.curve import CostCurve
from engines.cost.interleaved import ROWS, sample
from engines.errors import RunFailed, StartCancelled
from engines.report.events import PriceMeasured

TEXT = " ".join(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"] * 8)
_CONTEXT = 192  # tokens that the server keeps meanwhile
_SECONDS = 2.0

Ask = Callable[[Sequence[int]], tuple[Any, Any]]
"""Sends a prompt of token ids; how many of them were read anew, and in how many seconds."""


def measure_remote_cost(
    ask: Ask, tokens: Sequence[int], limit: int, cancelled: Callable[[], bool], progress: Callable[[float], None]
) -> PriceMeasured:
    """t(n) for about two seconds, or three slow requests.

    Args:
        tokens: ids to make prompts of, no two neighbours the same.
        limit: tokens that a prompt may have.
        progress: told the share done.

    Raises:
        StartCancelled: it was cancelled.
        RunFailed: the server read another number of tokens than it was to read, or its context has no room for any.
    """
    sizes = [rows for rows in ROWS if rows < limit]
    if not sizes or not tokens:
        raise RunFailed("the server says that it has no context for a prompt, or no tokens for a text",
                        "t(n) stays unknown; start it with a larger context")
    context = min(_CONTEXT, limit - max(sizes))
    kept = list(islice(cycle(tokens), context))
    begun, first = perf_counter(), cycle(range(len(tokens)))

    def timed(rows: int) -> float:
        if cancelled():
            raise StartCancelled("the measurement")
        progress(min(1.0, (perf_counter() - begun) / _SECONDS))
        start = next(first)  # other tokens than the last time, so that none of them is kept
        read, seconds = ask([*kept, *islice(cycle(tokens), start, start + rows)])
        if read != rows or not seconds:
            raise RunFailed(f"the server read {read} tokens where {rows} were new: it keeps no prompts, or several "
                            "answers share it", "t(n) stays unknown; try again when nobody else asks")
        return seconds

    ask(kept)
    curve: CostCurve = sample(timed, _SECONDS, sizes)
    return PriceMeasured(curve.points, context)
