"""Bytes on their way: how many, how fast, how long yet, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from engines.progress import Loading, Rate

_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"), (1, "bytes"))


class DownloadProgress:
    """Bytes as they come in: how many, how fast, how long to go. ``what`` goes before them in words; ``here``: how many
    are here of earlier tries, and are checked first."""

    def __init__(self, what: str, total: int, here: int = 0) -> None:
        self._what, self.total, self.done = what, total, 0
        self._here, self._checked, self._checking = here, 0, 0
        self._lock, self._rate = Lock(), Rate()

    def add(self, count: int) -> None:
        """Count bytes; a negative number is thrown away and fetched again. Any thread."""
        with self._lock:
            self.done += max(count, 0)
            self.total += max(-count, 0)

    @contextmanager
    def checking(self) -> Iterator[Callable[[int], None]]:
        """While bytes of an earlier try are checked; gives what counts them. Any thread."""
        with self._lock:
            self._checking += 1
        try:
            yield self._check
        finally:
            with self._lock:
                self._checking -= 1

    def _check(self, count: int) -> None:
        with self._lock:
            self._checked += count

    def begin(self) -> None:
        """The rate is measured from now on."""
        self._rate = Rate(self.done)

    def report(self) -> Loading:
        """The state now, in words that fit a line of 80 columns together with a bar."""
        done = self.done
        rate = self._rate.after(done)
        if self._checking and rate is None:
            checked = min(self._checked, self._here)
            stage = f"checking what is there: {self._what}{of_bytes(checked, self._here)}"
            return Loading(stage, checked / max(self._here, 1), self.total)
        parts = [f"downloading {self._what}{of_bytes(done, self.total)}"]
        if rate:
            parts.append(f"{in_bytes(int(rate))}/s")
        if rate and done < self.total:
            parts.append(f"{in_time((self.total - done) / rate)} left")
        return Loading(", ".join(parts), min(1.0, done / self.total) if self.total else 1.0, self.total)


def in_bytes(count: int) -> str:
    """A number of bytes in words: "1.23 GB"."""
    size, unit = next((u for u in _UNITS if count >= u[0]), _UNITS[-1])
    return f"{_three(count / size)} {unit}"


def of_bytes(count: int, total: int) -> str:
    """A part of a number of bytes in words, both in the same unit: "0.4 of 1.23 GB"."""
    size, unit = next((u for u in _UNITS if total >= u[0]), _UNITS[-1])
    return f"{_three(count / size)} of {_three(total / size)} {unit}"


def in_time(seconds: float) -> str:
    """A duration in words, no finer than it is worth: "2 min"."""
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _three(number: float) -> str:
    """About three digits, none of them in an exponent."""
    return f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.{1 if number >= 10 else 2}f}"
