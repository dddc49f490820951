"""How far a build is, on stderr: a line that replaces itself on a terminal, a line a stage in a pipe."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

from engines.report.events import Loading
from spec_tui.cli.failures import narrate
from spec_tui.cli.output import Status
from spec_tui.present.progress import amount, in_time, line

if TYPE_CHECKING:
    from engines.datastores.building.progress import BuildProgress

__all__ = ["BuildProgressLine", "in_time"]

_EVERY = 0.1  # seconds between two lines


class BuildProgressLine:
    """While entered, shows steps of a build."""

    def __init__(self) -> None:
        self._status, self._terminal = Status(), sys.stderr.isatty()
        self._last, self._told = None, 0.0

    def __enter__(self) -> BuildProgressLine:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._status.__exit__(None, None, None)
        if kind is None:
            self._tell_stage(None)

    def show(self, step: BuildProgress) -> None:
        """The next step."""
        if self._last is not None and self._last.stage != step.stage:
            self._tell_stage(step)
        elif monotonic() - self._told < _EVERY and step.done != step.total:
            self._last = step
            return
        self._last, self._told = step, monotonic()
        self._status.show(Loading(line(step), None))

    def _tell_stage(self, following: BuildProgress | None) -> None:
        """In a pipe, that a stage is over."""
        if not self._terminal and self._last is not None and self._last.unit != "files":
            narrate(f"{self._last.stage}: {amount(self._last.done, self._last.unit)}")
        self._last = following
