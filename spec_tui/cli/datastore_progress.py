"""How far a build is, on stderr: a line that replaces itself on a terminal, a line a stage in a pipe."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from engines.events import Loading
from engines.sources.meter import in_bytes
from spec_tui.cli.errors import narrate
from spec_tui.cli.output import Status

if TYPE_CHECKING:
    from engines.datastores.pace import Step

_EVERY = 0.1  # seconds between two lines


class Pace:
    """While entered, shows steps of a build."""

    def __init__(self) -> None:
        self._status, self._terminal = Status(), sys.stderr.isatty()
        self._last, self._told = None, 0.0

    def __enter__(self) -> Pace:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._status.__exit__(None, None, None)
        if kind is None:
            self._tell_stage(None)

    def show(self, step: Step) -> None:
        """The next step."""
        if self._last is not None and self._last.stage != step.stage:
            self._tell_stage(step)
        elif monotonic() - self._told < _EVERY and step.done != step.total:
            self._last = step
            return
        self._last, self._told = step, monotonic()
        self._status.show(Loading(line(step), None))

    def _tell_stage(self, following: Step | None) -> None:
        """In a pipe, that a stage is over."""
        if not self._terminal and self._last is not None and self._last.unit != "files":
            narrate(f"{self._last.stage}: {amount(self._last.done, self._last.unit)}")
        self._last = following


def line(step: Step) -> str:
    """A step in words: "tokens: 3.2 MB of 10.0 MB, 1.1 MB/s, 6 s left"."""
    done = amount(step.done, step.unit) if step.total is None else _of(step)
    rate = f", {amount(step.rate, step.unit)}/s" if step.rate else ""
    left = f", {in_time(step.left)} left" if step.left else ""
    return f"{step.stage}: {done}{rate}{left}"


def _of(step: Step) -> str:
    if step.unit == "bytes":
        return f"{in_bytes(step.done)} of {in_bytes(step.total)}"
    return f"{step.done:,} of {amount(step.total, step.unit)}"


def amount(number: float, unit: str) -> str:
    """So much of a unit."""
    if unit == "bytes":
        return in_bytes(int(number))
    return f"{number:,.1f} {unit}" if number < 10 and number != int(number) else f"{number:,.0f} {unit}"


def in_time(seconds: float) -> str:
    """A time as people say it: "40 s", "12 min", "3.5 h"."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
