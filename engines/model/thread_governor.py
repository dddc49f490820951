"""Decoding goes on when something else begins to use the machine.

The threads of a forward wait for the slowest one dozens of times, so a run on all cores is as slow as the core that
something else is using: a single busy neighbour on two cores makes it twice as slow as one thread would be. Forwards
that take much longer than measured lead to a trial of one thread, and the faster number stays for a while. A long
context makes forwards as slow; then the trials find that several threads are still faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch

_FORWARDS = 6  # of which the median counts
_SLOW = 1.5  # times the expected seconds: something else is using the cores
_LASTING = 0.25  # seconds of that until there is a trial: a frame that a screen draws is no reason
_GAIN = 0.9  # several threads have to be this much faster than one to come back
_STAY = 2.0  # seconds, at least, until the number that lost a trial is tried again
_TRIALS = 0.1  # of all time at most, however long a forward is


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
