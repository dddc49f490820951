"""What other programs take of the processor while an answer is written."""

from __future__ import annotations

import os
from time import perf_counter

from engines.race.result import Disturbance
from engines.race.system_load import busy_seconds


class OtherPrograms:
    """Measures from its construction to ``stop`` what programs beside this one and its engine process take.

    Args:
        engine: process id of the engine.
    """

    def __init__(self, engine: int) -> None:
        self._engine = engine
        self._clock, self._busy, self._own = perf_counter(), busy_seconds(), self._own_seconds()

    def stop(self) -> Disturbance | None:
        """Cores that others kept busy on average; None where the system does not say."""
        own, busy, seconds = self._own_seconds(), busy_seconds(), perf_counter() - self._clock
        if None in (own, busy, self._own, self._busy) or seconds < 0.5:
            return None  # systems count in steps of some 10 ms
        others = busy - self._busy - (own - self._own)
        return Disturbance(max(0.0, others / seconds), None, os.cpu_count() or 1)

    def _own_seconds(self) -> float | None:
        import psutil

        try:
            times = [psutil.Process(pid).cpu_times() for pid in (os.getpid(), self._engine)]
        except (psutil.Error, OSError):
            return None
        return sum(t.user + t.system for t in times)
