"""What else the machine does while a lane runs. Where the system does not say, nothing is claimed."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter

_STAT = Path("/proc/stat")
_SCHEDULED = Path("/proc/thread-self/schedstat")
_IDLE = (3, 4)  # columns of /proc/stat: idle, iowait
_GUESTS = 8  # the columns from here on are counted in the ones before


class LoadWatch:
    """Measures from its making to ``stop``. Linux: /proc/stat has the time of all cores in hundredths of a second, so
    ``other_seconds`` of a very short run is rough; elsewhere both are None."""

    def __init__(self) -> None:
        self._busy, self._waited = _busy_seconds(), _waited_seconds()
        self._own = _own_seconds()
        self._clock = perf_counter()

    def stop(self) -> tuple[float, float | None, float | None]:
        """(seconds, other_seconds, waited_seconds), as in ``LaneFinished``."""
        seconds = perf_counter() - self._clock
        own, busy, waited = _own_seconds() - self._own, _busy_seconds(), _waited_seconds()
        others = None
        if busy is not None and self._busy is not None and busy - self._busy >= own / 2:  # else it counts other cores
            others = max(0.0, busy - self._busy - own)
        late = None if waited is None or self._waited is None else max(0.0, waited - self._waited)
        return seconds, others, late


def _own_seconds() -> float:
    """Processor time of this process and of the children it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _busy_seconds() -> float | None:
    """Time that all cores were at work, time stolen by a hypervisor included."""
    try:
        columns = _STAT.read_text().split("\n", 1)[0].split()[1:]
        ticks = [int(column) for column in columns[:_GUESTS]]
        return sum(t for i, t in enumerate(ticks) if i not in _IDLE) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None


def _waited_seconds() -> float | None:
    """How long this thread was ready to run, and another was on its core."""
    try:
        return int(_SCHEDULED.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
