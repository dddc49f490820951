"""Ctrl+c during a run."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType


class Interrupt:
    """While entered, the first ctrl+c asks (calling this says True from then on), the second raises
    KeyboardInterrupt."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        return self._asked

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
