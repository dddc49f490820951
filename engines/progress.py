"""Progress of work that takes a while: loading, builds, searches, measurements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import Any

from engines.errors import StartCancelled

_WINDOW = 5.0  # seconds that the rate is averaged over


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading: a stage in words, and how much of it is done (0..1, None where unknown). ``bytes`` is the
    size of the download under way, None while nothing is downloaded; an event that announces one has no ``done``."""

    stage: str
    done: float | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """Progress of one stage.

    Attributes:
        stage: in words.
        done, total, unit: how much of it is done, out of how much (None if unknown), in which unit.
        rate: units a second lately; None at first.
        seconds_left: at this rate; None if unknown.
    """

    stage: str
    done: int
    total: int | None
    unit: str
    rate: float | None = None
    seconds_left: float | None = None


Progress = Callable[[BuildProgress], None]
_EVERY = 0.1  # seconds between two reports of one stage that are passed on


def no_progress(_: BuildProgress) -> None:
    """Ignores progress."""


def unless(cancelled: Callable[[], bool], progress: Callable[[Loading], None], what: str) -> Callable[[Loading], None]:
    """Progress that raises StartCancelled in what reports to it, once that is cancelled; ``what`` that is, in words."""
    def told(step: Loading) -> None:
        if cancelled():
            raise StartCancelled(what)
        progress(step)

    return told


def with_heartbeat(
    call: Callable[[], Any], beat: Callable[[], None], tick: float, left: Callable[[], None] = lambda: None
) -> Any:
    """What ``call`` returns or raises, called on a thread of its own; ``beat`` is called every ``tick`` seconds on this
    one. If that raises, the call is left to itself, and ``left`` is called."""
    result: Future[Any] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # of any kind: somebody waits
            result.set_exception(error)

    Thread(target=work, daemon=True).start()
    try:
        while not wait([result], tick).done:
            beat()
    except BaseException:  # ctrl+c too
        left()
        raise
    return result.result()


class SomeProgress:
    """Passes on the first and the last report of each stage, and a few a second of those between; whatever ``check``
    raises, with each report, leaves the work."""

    def __init__(self, progress: Progress, check: Callable[[], None]) -> None:
        self._progress, self._check = progress, check
        self._stage, self._at = "", 0.0

    def __call__(self, step: BuildProgress) -> None:
        self._check()
        if step.stage != self._stage or monotonic() - self._at >= _EVERY or step.done == step.total:
            self._stage, self._at = step.stage, monotonic()
            self._progress(step)


class Rate:
    """How much is done in a second, averaged over the last few; ``done`` is where the count begins."""

    def __init__(self, done: int = 0) -> None:
        self._history: deque[tuple[float, int]] = deque([(monotonic(), done)])

    def after(self, done: int) -> float | None:
        """The rate now that so much is done; None while nothing comes."""
        now = monotonic()
        self._history.append((now, done))
        while now - self._history[0][0] > _WINDOW and len(self._history) > 2:
            self._history.popleft()
        begun, before = self._history[0]
        return (done - before) / (now - begun) if now > begun and done > before else None


class ProgressReporter:
    """Reports one stage to ``progress``, with its rate and the time left; ``done`` is where this run takes it up."""

    def __init__(self, stage: str, unit: str, progress: Progress, done: int = 0) -> None:
        self._stage, self._unit, self._progress, self._rate = stage, unit, progress, Rate(done)

    def report(self, done: int, total: int | None) -> None:
        """Say how much is done. Whatever ``progress`` raises leaves this method."""
        rate = self._rate.after(done)
        left = (total - done) / rate if rate and total is not None else None
        self._progress(BuildProgress(self._stage, done, total, self._unit, rate, left))
