"""Decoding on several threads, on a machine that something else begins to use.

The threads of a forward wait for the slowest one dozens of times, so a run on all cores is as slow as the core that
something else is using: a single busy neighbour on two cores makes it twice as slow as one thread would be. Here
forwards that take much longer than measured lead to a trial of one thread, and the faster of the two stays for a while.
A long context makes them as slow; then the trials find that several threads are still the faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

from engines.cost.curve import CostCurve

_FORWARDS = 6  # of which the median counts
_SLOW = 1.5  # times the measured price: something else is using the cores
_GAIN = 0.9  # several threads have to be this much faster than one to come back
_STAY = 2.0  # seconds, at least, until what was given up is tried again
_TRIALS = 0.1  # of all time at most, however long a forward is


class ThreadGovernor:
    """Told of every forward, it sets the number of threads of this process.

    Args:
        price: t(n) on ``threads`` threads.
        threads: the number that was found best at load; one leaves nothing to decide.
        use: sets the number of threads.
        clock: seconds.

    Attributes:
        using: threads at the moment.
    """

    def __init__(
        self, price: CostCurve, threads: int, use: Callable[[int], None] = torch.set_num_threads,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._price, self._threads, self._use, self._clock = price, threads, use, clock
        self.using = threads
        self._recent: deque[float] = deque(maxlen=_FORWARDS)
        self._other: float | None = None  # of the other number of threads, while one is on trial
        self._began = self._until = 0.0  # when the trial began; before when there is no other

    def told(self, rows: int, seconds: float) -> None:
        """A forward of so many rows took so long."""
        if self._threads == 1:
            return
        self._recent.append(seconds / self._price.at(rows))
        if len(self._recent) < _FORWARDS:
            return
        now, clock = median(self._recent), self._clock()
        if self._other is not None:
            self._judge(now, clock)
        elif clock >= self._until and (self.using == 1 or now > _SLOW):
            self._other, self._began = now, clock  # the other number of threads is on trial
            self._change()

    def _judge(self, now: float, clock: float) -> None:
        """The trial is over: keep the number that is faster; one thread unless several are clearly."""
        one, several = (now, self._other) if self.using == 1 else (self._other, now)
        if (self.using == 1) != (several > _GAIN * one):
            self._change()
        self._other, self._until = None, clock + max(_STAY, (clock - self._began) / _TRIALS)

    def _change(self) -> None:
        self.using = 1 if self.using > 1 else self._threads
        self._recent.clear()
        self._use(self.using)

    def leave(self) -> None:
        """A run is over: as many threads as before, for whatever comes next."""
        if self.using != self._threads:
            self._change()
        self._recent.clear()
        self._other = None
