"""Progress on stderr: on a terminal a line that replaces itself and goes away."""

from __future__ import annotations

import os
import shutil
import sys
from time import monotonic
from types import TracebackType
from typing import Self

from engines.progress import BuildProgress
from engines.report.events import Failed, Loading, Preparing
from spec_tui.cli.failures import narrate
from spec_tui.present.progress_text import amount, amount_done, preparing_share, preparing_words, rate_and_time_left
from spec_tui.present.rows import bar
from spec_tui.present.text import dumb, fitted, one_line

_BAR = 24  # columns
_INTERVAL = 0.1  # seconds between two drawings


class Status:
    """What is being loaded; nothing where stderr is not a terminal."""

    _first = "loading ..."

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty() and not dumb(os.environ)
        self._downloading = False
        self._line = ""  # what it shows now: where that is nothing, the line may be somebody else's

    def __enter__(self) -> Self:
        self._write(self._first)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write("")
        if kind is KeyboardInterrupt and self._downloading:
            narrate("what was downloaded is kept: the same command continues")

    def show(self, event: Loading) -> None:
        """Progress of loading. How large a download will be is said where nothing replaces it, in a pipe too."""
        self._downloading = event.bytes is not None
        if self._downloading and event.done is None:
            self._write("")
            narrate(one_line(event.stage))
            return
        done = "" if event.done is None else f" {event.done:.0%}"
        self._write(event.stage, f"{done} ...")

    def show_preparing(self, event: Preparing) -> None:
        """Progress before an answer; ``clear`` takes it away."""
        self.show(Loading(preparing_words(event), preparing_share(event)))

    def clear(self) -> None:
        self._write("")

    def tell_left_out(self, label: str, failed: Failed, others: int) -> None:
        """Say that a lane failed, where nothing replaces it; ``others``: the lanes that remain."""
        self._write("")
        narrate(f"{one_line(label)} failed and is left out: {failed.message}{'; the others continue' * bool(others)}")

    def _write(self, text: str, end: str = "") -> None:
        """Replace the line; of a long text only as much as fits."""
        if self.shown and (text or self._line):
            self._line = fitted(text, shutil.get_terminal_size().columns - len(end) - 1) + end
            print(f"\r\x1b[K{self._line}", end="", file=sys.stderr, flush=True)


class StageProgress(Status):
    """The stages of a build: bars on a terminal, one line a stage in a pipe. Nothing is drawn between two calls of
    ``show``, so that a measurement is not disturbed."""

    _first = ""

    def __init__(self) -> None:
        super().__init__()
        self._last: BuildProgress | None = None
        self._drawn = 0.0

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        if kind is None:
            self._end_stage()

    def show(self, step: BuildProgress, remark: str = "") -> None:
        """Draw the next step; ``remark`` stands after it."""
        begins = self._last is None or self._last.stage != step.stage
        if begins:
            self._end_stage()
        self._last = step
        if begins or monotonic() - self._drawn >= _INTERVAL or step.done == step.total:
            self._drawn = monotonic()
            drawn = f"{bar(step.done / step.total, _BAR):·<{_BAR}} " if step.total else ""
            self._write(f"{step.stage} {drawn}{amount_done(step)}{rate_and_time_left(step)}{remark}")

    def _end_stage(self) -> None:
        """In a pipe, say that the last stage is over."""
        last = self._last
        if not self.shown and last is not None and last.unit != "files":
            narrate(f"{last.stage}: {amount(last.done, last.unit)}")
