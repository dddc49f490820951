"""A program in a pseudo-terminal, and what it wrote."""

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
from collections.abc import Sequence


class Terminal:
    """Runs a command in a pseudo-terminal of its own and reads what it writes, as a terminal would.

    Attributes:
        seen: the last 64 KB written.
    """

    def __init__(
        self, command: Sequence[str], width: int = 120, height: int = 40, env: dict[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        environment = {**os.environ, **(env or {}), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=follower, stdout=follower, stderr=follower, env=environment, pass_fds=pass_fds,
            start_new_session=True,
        )
        os.close(follower)
        self.seen = b""
        self.written = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                if not select.select([self._leader], [], [], 1.0)[0]:
                    continue
                data = os.read(self._leader, 1 << 16)
            except (OSError, ValueError):  # the program ended
                return
            self.written += len(data)
            self.seen = (self.seen + data)[-(1 << 16) :]

    def wait_for(self, text: bytes, seconds: float) -> bool:
        """Whether this was written within so many seconds."""
        clock = time.perf_counter()
        while text not in self.seen and time.perf_counter() - clock < seconds:
            time.sleep(0.002)
        return text in self.seen

    def type(self, text: str) -> None:
        """Type this."""
        os.write(self._leader, text.encode())

    def close(self) -> None:
        """End the program and what it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join(2)
        os.close(self._leader)
