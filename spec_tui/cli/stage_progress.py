"""Progress of a build on stderr: bars on a terminal, one line a stage in a pipe."""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType

from engines.progress import BuildProgress
from spec_tui.cli.failures import narrate
from spec_tui.present.progress_text import amount, amount_done, rate_and_time_left
from spec_tui.present.text import one_line

_INTERVAL = 0.1  # seconds between two drawings


class StageProgress:
    """Shows the stages while it is entered. Nothing is drawn between two calls of ``show``, so that a measurement is
    not disturbed."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.terminal = sys.stderr.isatty()
        words = [TextColumn(f"{{task.{field}}}", markup=False) for field in ("description", "fields[amount]")]
        self._bars = Progress(
            words[0], BarColumn(24), words[1], console=Console(stderr=True), transient=True, auto_refresh=False,
            disable=not self.terminal,
        )
        self._last: BuildProgress | None = None
        self._drawn = 0.0

    def __enter__(self) -> StageProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()
        if kind is None:
            self._end_stage()

    def show(self, step: BuildProgress, remark: str = "") -> None:
        """Draw the next step; ``remark`` stands after it."""
        if self._last is None or self._last.stage != step.stage:
            self._end_stage()
            for task in self._bars.task_ids:
                self._bars.remove_task(task)
            self._bars.add_task(one_line(step.stage), total=step.total, amount="")
        elif monotonic() - self._drawn < _INTERVAL and step.done != step.total:
            self._last = step
            return
        self._last, self._drawn = step, monotonic()
        words = one_line(f"{amount_done(step)}{rate_and_time_left(step)}{remark}")
        self._bars.update(self._bars.task_ids[-1], completed=step.done, total=step.total, amount=words, refresh=True)

    def _end_stage(self) -> None:
        """In a pipe, say that the last stage is over."""
        last = self._last
        if not self.terminal and last is not None and last.unit != "files":
            narrate(f"{last.stage}: {amount(last.done, last.unit)}")
