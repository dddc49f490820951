"""Ctrl+c during a run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType, TracebackType

from engines.wire import Event


class Interrupt:
    """While entered, the first ctrl+c asks for an end (calling this says True from then on), the second
    raises KeyboardInterrupt, though only while the next event is awaited, so that none is half dealt with."""

    def __init__(self) -> None:
        self._times = 0
        self._awaiting = False

    def __call__(self) -> bool:
        return self._times > 0

    def over(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events. Raises KeyboardInterrupt after the second ctrl+c."""
        while True:
            self._awaiting = True
            try:
                if self._times > 1:
                    raise KeyboardInterrupt
                event = next(events, None)
            finally:
                self._awaiting = False
            if event is None:
                return
            yield event

    def __enter__(self) -> Interrupt:
        self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self._times += 1
        if self._times > 1 and self._awaiting:
            raise KeyboardInterrupt
