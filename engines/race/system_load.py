"""What else the machine does while a lane runs. Where the system does not say, the values are None."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

from engines.machine import busy_seconds

_SCHEDULED = Path("/proc/thread-self/schedstat")
_ROUGH = 0.02  # seconds: two of the steps in which systems count


class LoadWatch:
    """Measures from its construction to ``stop``. Systems count the time of all cores in steps of some 10 ms, so
    ``other_seconds`` of a very short run is rough, and below 0 as often as it is too large: in sums of many runs this
    evens out. ``waited_seconds`` is known on Linux only."""

    def __init__(self) -> None:
        children = _children_seconds()
        self._clock = perf_counter()  # its time holds that of the counters, so that no share of it is beyond all
        self._waited, self._busy, self._own = _waited_seconds(), busy_seconds(), _process_seconds() + children

    def stop(self) -> tuple[float, float | None, float | None]:
        """(seconds, other_seconds, waited_seconds), as in ``LaneFinished``."""
        busy, waited = busy_seconds(), _waited_seconds()
        seconds = perf_counter() - self._clock
        own = _process_seconds() + _children_seconds() - self._own
        others = None
        if None not in (busy, self._busy) and busy - self._busy >= own / 2 - _ROUGH:  # else it counts other cores
            others = busy - self._busy - own
        return seconds, others, None if None in (waited, self._waited) else waited - self._waited


def _process_seconds() -> float:
    """Processor time of this process and of its children that are over."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _children_seconds() -> float:
    """Processor time of the children of this process that run."""
    import psutil

    try:
        alive = [child.cpu_times() for child in psutil.Process().children()]
    except (psutil.Error, OSError, NotImplementedError):
        return 0.0
    return sum(child.user + child.system for child in alive)


def _waited_seconds() -> float | None:
    """How long this thread was ready to run while another was on its core."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
