"""What else the machine does while a lane runs. Where the system does not say, the values are None."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from engines.machine import busy_seconds

_SCHEDULED = Path("/proc/thread-self/schedstat")


class LoadWatch:
    """Measures from its construction to ``stop``. Systems count the time of all cores in steps of some 10 ms, so
    ``other_seconds`` of a very short run is rough. ``waited_seconds`` is known on Linux only."""

    def __init__(self) -> None:
        self._busy, self._waited = busy_seconds(), _waited_seconds()
        self._own = _own_seconds()
        self._clock = perf_counter()

    def stop(self) -> tuple[float, float | None, float | None]:
        """(seconds, other_seconds, waited_seconds), as in ``LaneFinished``."""
        seconds = perf_counter() - self._clock
        own, busy, waited = _own_seconds() - self._own, busy_seconds(), _waited_seconds()
        others = None
        if busy is not None and self._busy is not None and busy - self._busy >= own / 2:  # else it counts other cores
            others = max(0.0, busy - self._busy - own)
        late = None if waited is None or self._waited is None else max(0.0, waited - self._waited)
        return seconds, others, late


def _own_seconds() -> float:
    """Processor time of this process and of its children, those that are over too."""
    import psutil

    times = os.times()
    spent = times.user + times.system + times.children_user + times.children_system
    try:
        alive = [child.cpu_times() for child in psutil.Process().children()]
    except (psutil.Error, OSError, NotImplementedError):
        return spent
    return spent + sum(child.user + child.system for child in alive)


def _waited_seconds() -> float | None:
    """How long this thread was ready to run while another was on its core."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
