"""A real terminal for tests: a program on a pseudo-terminal, and a screen that understands what it writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable

import pyte

PATIENCE = 40.0
_OURS = {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}  # of the terminal that the tests run in


def _begin() -> None:
    """In the new process: its terminal, and signals as a shell leaves them, whatever the tests were told to ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


class Terminal:
    """Runs a command in a terminal of its own, as its controlling terminal, so that ctrl+c is a signal."""

    def __init__(self, arguments: list[str], columns: int = 100, rows: int = 30, **environment: str) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.modes = termios.tcgetattr(theirs)
        keep = {name: value for name, value in os.environ.items() if name not in _OURS}
        self.process = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env={**keep, "TERM": "xterm-256color", "COLORTERM": "truecolor", **environment},
            preexec_fn=_begin,
        )
        self._theirs = theirs
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as a window is closed."""
        self._closed.set()
        self._reader.join()  # it would read from whatever gets the same number next
        for end in (self._theirs, self._ours):
            if end >= 0:
                os.close(end)
        self._theirs = self._ours = -1

    @property
    def text(self) -> str:
        """What is on the screen, as it reads: a space that does not break is a space."""
        with self._lock:
            return "\n".join(line.replace("\xa0", " ").rstrip() for line in self.screen.display)

    def type(self, keys: str | bytes) -> None:
        os.write(self._ours, keys if isinstance(keys, bytes) else keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Another size, as a window is dragged."""
        with self._lock:
            self.screen.resize(rows, columns)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, what: str | Callable[[str], object], seconds: float = PATIENCE) -> str:
        """The screen, once it shows a text or fulfils a condition."""
        holds = (lambda text: what in text) if isinstance(what, str) else what
        deadline = time.monotonic() + seconds
        while not holds(text := self.text):
            assert time.monotonic() < deadline, f"{what} did not come about; the screen:\n{text}"
            assert self.process.poll() is None or holds(self._settled()), f"ended with the screen:\n{self.text}"
            time.sleep(0.02)
        return text

    def exit_code(self, seconds: float = PATIENCE) -> int:
        """The program's exit code, everything it wrote having been read."""
        code = self.process.wait(seconds)
        self._settled()
        return code

    def current_modes(self) -> list:
        """The terminal's settings now; equal to ``modes`` where the program left it as it was."""
        return termios.tcgetattr(self._theirs)

    def _settled(self) -> str:
        size = -1
        while size != len(self.raw):
            size = len(self.raw)
            time.sleep(0.05)
        return self.text

    def _read(self) -> None:
        while not self._closed.is_set():
            if not select.select([self._ours], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self._ours, 1 << 16)
            except OSError:
                return
            with self._lock:
                self.raw += data
                # A parser of a terminal that meets a sequence it does not know must not end the test's reading.
                with contextlib.suppress(Exception):
                    self._stream.feed(data)
