"""How many threads, and which layout of the linear layers: decided by a measurement at load, of a second or two.

Small models are bound by the cost of starting operations, and a second thread mostly waits to be woken; large ones by
memory bandwidth, where all threads pay. More threads are taken only where they gain a tenth: a run on several threads
is as slow as the core that something else is using. The measurement runs under the waiting policy of the process, which
libgomp reads once, when torch is loaded, and on the machine as busy as it is: with a neighbour, one thread wins.

Decoding goes on when something else begins to use the machine (``ThreadGovernor``). The threads of a forward wait for
the slowest one dozens of times, so a run on all cores is as slow as the core that something else is using: a single
busy neighbour on two cores makes it twice as slow as one thread would be. Forwards that take much longer than measured
lead to a trial of one thread, and the faster number stays for a while. A long context makes forwards as slow; then the
trials find that several threads are still faster.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch
from torch import nn

from engines.libraries.hf import PreTrainedModel
from engines.machine import ram
from engines.model.native.native_linear import NATIVE
from engines.model.weight_layouts import LAYOUTS, available

_THREADS_MUST_GAIN = 0.9
_SCREEN_MUST_GAIN = 0.7  # those that a screen draws on, too, and slows down meanwhile
_LAYOUT_MUST_GAIN = 0.95  # over each simpler one
_LONG = 0.03  # seconds of a forward: what a screen takes of it hardly matters
_REPEATS = 5
_ROWS = (1, 8)  # one row: autoregressive decoding and drafting; several: verification
_SAMPLE_BYTES = 128 << 20
_TWICE_BYTES, _TWICE_SHARE = 128 << 20, 8  # linear weights that may lie in memory twice: so many, 1/8 of what is free
_FORWARDS = 6  # of which the median counts
_SLOW = 1.5  # times the expected seconds: something else is using the cores
_LASTING = 0.25  # seconds of that until there is a trial: a frame that a screen draws is no reason
_GAIN = 0.9  # several threads have to be this much faster than one to come back
_STAY = 2.0  # seconds, at least, until the number that lost a trial is tried again
_TRIALS = 0.1  # of all time at most, however long a forward is
_replaced: dict[int, int] = {}  # the count that was set here last, and torch's own count


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a forward outside its linear layers, and of those in each layout ("plain" as loaded)."""

    rest: float
    linears: dict[str, float]

    @property
    def layout(self) -> str:
        """The fastest layout; a later, less plain one only where it gains enough over those before it."""
        chosen = "plain"
        for name, seconds in self.linears.items():
            if seconds < _LAYOUT_MUST_GAIN * self.linears[chosen]:
                chosen = name
        return chosen

    @property
    def total(self) -> float:
        """Seconds of a forward in the fastest layout."""
        return self.rest + self.linears[self.layout]


def tune(
    model: PreTrainedModel, threads: int | None = None, forward: Callable[[], object] | None = None,
    progress: Callable[[float], None] = lambda done: None, once: bool = False, native: bool = False,
) -> str:
    """Set torch's thread count as is fastest, and find the layout of the model's linear layers that is.

    Args:
        model: a causal language model of transformers on the CPU.
        threads: a count to keep; None measures 1, 2, 4, ... up to torch's own default, as long as each gains enough
            over the one before; unless OMP_NUM_THREADS is set. A negative number leaves so many of the default to
            whatever else runs (a screen that draws), unless a forward is long or they gain much.
        forward: one row through the model, linear layers as loaded; None takes the module's own.
        progress: told the share that is done.
        once: no layout that has the weights in memory twice.
        native: the layout of native code is among them.

    Returns:
        The layout of the linear layers, "plain" or one of ``LAYOUTS``: for ``lay_out``, once ``forward`` is gone (it
        may hold the weights as they are).
    """
    default = threads if threads and threads > 0 else own_threads()
    free = default + min(threads or 0, 0)
    layouts = layouts_of(model, once, native)
    chosen, best = 0, None
    counts = [default] if is_given(threads) else _counts(default)
    for number, count in enumerate(counts):
        cost = measure(model, count, layouts, forward, lambda done, n=number: progress((n + done) / len(counts)))
        must_gain = _THREADS_MUST_GAIN
        if best is not None and count > free and best.total < _LONG:
            must_gain = _SCREEN_MUST_GAIN
        if best is not None and cost.total >= must_gain * best.total:
            break
        chosen, best = count, cost
    use_threads(chosen)
    return best.layout


def is_given(threads: int | None) -> bool:
    """Whether the user has chosen the number of threads."""
    return bool(threads and threads > 0) or "OMP_NUM_THREADS" in os.environ


def own_threads() -> int:
    """The number of threads that torch would take, whatever was found for a model before."""
    return _replaced.get(torch.get_num_threads(), torch.get_num_threads())


def use_threads(count: int) -> None:
    """Set torch's number of threads, for a model."""
    own = own_threads()
    torch.set_num_threads(count)
    _replaced.clear()
    _replaced[count] = own


def layouts_of(model: PreTrainedModel, once: bool = False, native: bool = False) -> list[str]:
    """What the layout of a model's linear layers may be beside "plain", simplest first; ``once`` and ``native`` as of
    ``tune``."""
    if not any(type(module) is nn.Linear for module in model.modules()):
        return []  # quantised layers have no other layout
    names = [name for name in LAYOUTS if native or name != NATIVE]
    if once or not _fits_twice(model):
        names.remove("both")
    return [name for name in names if available(name, model.dtype)]


def _counts(most: int) -> list[int]:
    return [*(1 << n for n in range(most.bit_length()) if 1 << n < most), most]


def _fits_twice(model: nn.Module) -> bool:
    size = sum(m.weight.nbytes for m in model.modules() if type(m) is nn.Linear)
    return size <= max(_TWICE_BYTES, (ram()[1] or 0) // _TWICE_SHARE)


def measure(
    model: PreTrainedModel, threads: int, layouts: list[str], forward: Callable[[], object] | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Cost:
    """What a forward costs on this many threads, in each layout."""
    torch.set_num_threads(threads)
    row = torch.zeros(1, 1, dtype=torch.long)
    plain, share = _sample(model)
    linears = {"plain": plain}
    with torch.inference_mode():
        linears |= {name: [LAYOUTS[name](linear) for linear in plain] for name in layouts}
    widths = {m.in_features for m in plain}
    inputs = {rows: {width: torch.zeros(rows, width, dtype=model.dtype) for width in widths} for rows in _ROWS}
    calls: dict[object, Callable[[], object]] = {
        "forward": forward or (lambda: model(input_ids=row, use_cache=False))
    }
    for name, layers in linears.items():
        for rows in _ROWS:
            calls[name, rows] = lambda layers=layers, rows=rows: [m(inputs[rows][m.in_features]) for m in layers]
    times = _interleaved(calls, progress)
    means = {name: sum(times[name, rows] for rows in _ROWS) / len(_ROWS) / share for name in linears}
    return Cost(max(times["forward"] - times["plain", 1] / share, 0.0), means)


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


@torch.inference_mode()
def _interleaved(
    calls: dict[object, Callable[[], object]], progress: Callable[[float], None]
) -> dict[object, float]:
    """The best time of each call over several rounds in turn, after one that warms up: what the machine can do,
    whatever else it is doing, and no call meets another weather than the others."""
    best = dict.fromkeys(calls, float("inf"))
    for repeat in range(_REPEATS + 1):
        progress(repeat / (_REPEATS + 1))
        for name, call in calls.items():
            clock = perf_counter()
            call()
            if repeat:
                best[name] = min(best[name], perf_counter() - clock)
    return best


class ThreadGovernor:
    """Sets the number of threads of this process by how long forwards take.

    Args:
        expected: seconds that a forward over so many rows takes on ``threads`` threads (``CostCurve.at``).
        threads: the number that was found best at load; with one there is nothing to decide.
        set_threads: sets the number of threads.
        clock: seconds.

    Attributes:
        threads: the number set at the moment.
    """

    def __init__(
        self, expected: Callable[[float], float], threads: int,
        set_threads: Callable[[int], None] = torch.set_num_threads, clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._expected, self._most, self._set, self._clock = expected, threads, set_threads, clock
        self.threads = threads
        self._recent: deque[float] = deque(maxlen=_FORWARDS)
        self._other: float | None = None  # slowness on the other number of threads, while one is on trial
        self._began = self._until = 0.0  # when the trial began; until when no trial begins
        self._slow_since: float | None = None

    def record(self, rows: int, seconds: float) -> None:
        """Take note of a forward over so many rows, and change the number of threads where that is due."""
        if self._most == 1:
            return
        self._recent.append(seconds / self._expected(rows))
        if len(self._recent) < _FORWARDS:
            return
        slowness, now = median(self._recent), self._clock()
        if self._other is not None:
            self._end_trial(slowness, now)
        elif now >= self._until and (self.threads == 1 or self._lastingly_slow(slowness, now)):
            self._other, self._began = slowness, now
            self._change()

    def _lastingly_slow(self, slowness: float, now: float) -> bool:
        if slowness <= _SLOW:
            self._slow_since = None
        elif self._slow_since is None:
            self._slow_since = now
        return self._slow_since is not None and now - self._slow_since >= _LASTING

    def _end_trial(self, slowness: float, now: float) -> None:
        """Keep the number of threads that is faster: one, unless several are clearly faster."""
        one, several = (slowness, self._other) if self.threads == 1 else (self._other, slowness)
        if (self.threads == 1) != (several > _GAIN * one):
            self._change()
        self._other, self._until = None, now + max(_STAY, (now - self._began) / _TRIALS)

    def _change(self) -> None:
        self.threads = 1 if self.threads > 1 else self._most
        self._recent.clear()
        self._slow_since = None
        self._set(self.threads)

    def restore(self) -> None:
        """Set as many threads as before the run, for whatever comes next."""
        if self.threads != self._most:
            self._change()
        self._recent.clear()
        self._other = self._slow_since = None
