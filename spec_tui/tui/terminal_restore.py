"""Leaving the terminal as it was, however the application ends: by itself, by a signal, or killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.app import App

LEAVING = ("SIGTERM", "SIGHUP")
_PATIENCE = 1.0  # seconds: a window that closes sends SIGHUP twice, itself and through the shell
# What Textual switches on, off again: synchronised output, mouse, pasting in brackets, focus and size reports, the
# keyboard protocol, the alternate screen; and the cursor and plain text on.
_RESET = b"".join(b"\x1b[?%dl" % mode for mode in (2026, 1000, 1002, 1003, 1006, 1015, 2004, 1004, 2048)) + (
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m")


@contextmanager
def restored() -> Iterator[None]:
    """Puts the terminal's settings back, whatever the application did: Textual takes its own raw mode for the original
    after the process was stopped and continued from outside. Where this process is killed, another one does it."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    settings, errors = termios.tcgetattr(sys.stdin), sys.__stderr__
    guard, all_is_well = _guard(settings)
    sys.__stderr__ = TerminalOutput(errors)  # what Textual draws on
    try:
        yield
    finally:
        sys.__stderr__ = errors
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
        with suppress(OSError):  # somebody ended the guard
            os.write(all_is_well, b".")
            os.waitpid(guard, 0)


class TerminalOutput:
    """A terminal's output; what is written after the terminal was closed is lost. Textual's own thread would end with
    the error, and the application would wait for that thread forever."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _guard(settings: list[Any]) -> tuple[int, int]:
    """Start a process that resets the terminal when this one dies without a word. Gives its id, and where to write the
    word. It has a session of its own, so that no signal of the terminal ends it."""
    import termios

    reading, writing = os.pipe()
    if child := os.fork():
        os.close(reading)
        return child, writing
    try:
        os.close(writing)
        os.setsid()
        for name in (*LEAVING, "SIGINT", "SIGQUIT"):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
        if not os.read(reading, 1):
            os.write(sys.stdout.fileno(), _RESET)
            # A shell's own line editing takes ctrl+c as a signal; Textual does not. So nobody was here before.
            if not termios.tcgetattr(sys.stdin)[3] & termios.ISIG:
                termios.tcsetattr(sys.stdin, termios.TCSANOW, settings)
    finally:
        os._exit(0)


def leave_on_signals(app: App[int]) -> None:
    """The signals that ask a process to end close the application in order, which restores the terminal. One that
    comes later than the first ends the process, whatever the application does."""
    import asyncio

    loop, asked = asyncio.get_running_loop(), []

    def leave(number: int, frame: FrameType | None) -> None:
        asked.append(monotonic())
        if loop.is_closed() or asked[-1] - asked[0] > _PATIENCE:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        loop.call_soon_threadsafe(partial(app.exit, return_code=128 + number))

    for name in LEAVING:
        with suppress(AttributeError, ValueError):  # Windows; a loop in another thread
            number = getattr(signal, name)
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, leave)
