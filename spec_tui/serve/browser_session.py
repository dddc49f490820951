"""A session: the process that draws the application, the browser that shows it now, and how it ends. What passes
between server and process is Textual's: a letter, a length of four bytes, the data."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from spec_tui.serve.session_policy import SessionPolicy, confinement, furnish, variables
from spec_tui.session.log import open_log

LEFT = "The session has ended."
LOST = "The session ended unexpectedly."
ELSEWHERE = "This session is shown in another window or tab now."
AWAY = "The session ended because its browser was away for too long."
STOPPED = "The server was stopped."
_READY = b"__GANGLION__\n"
_DATA, _META = b"D", b"M"
_LARGEST = 1 << 26  # bytes of a packet: a screen has thousands
_PATIENCE = 3.0  # seconds that a session gets to end by itself


Started = Mapping[int, Sequence[psutil.Process]]
"""The processes of this machine, by the id of the one that started them."""


def started_by() -> Started:
    """As things are."""
    found: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found.setdefault(process.ppid(), []).append(process)
    return found


class Browser(Protocol):
    """The end of a websocket that a session draws on."""

    async def draw(self, data: bytes) -> None:
        """Show this; errors of the connection are none of the session's."""

    async def leave(self, why: str) -> None:
        """Close the connection, with a sentence for the person."""


class BrowserSession:
    """One session. Its process starts with ``start`` and its folder is gone after ``end``.

    Args:
        policy: what it shows.
        folder: of its own, which does not exist yet.
        over: called once it has ended.
        heard: called with what its process says beside what it draws.
        command: the process; the default shows the policy.
    """

    def __init__(
        self, policy: SessionPolicy, folder: Path, over: Callable[[BrowserSession], None],
        command: list[str] | None = None, heard: Callable[[BrowserSession, bytes], None] | None = None,
    ) -> None:
        limits = confinement(policy, folder)
        self._command = command or [
            sys.executable, "-P", "-m", "spec_tui.serve.visitor_process",
            msgspec.json.encode(policy).decode(), msgspec.json.encode(limits).decode(),
        ]
        self._policy, self._folder, self._over, self._take_event = policy, folder, over, heard
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._browser: Browser | None = None
        self._known: list[psutil.Process] = []  # those that it consists of, when it was last looked at
        self._drawn = False
        self._begun = asyncio.Event()  # or failed to
        self.why = LEFT

    @property
    def role(self) -> str:
        """Of a session of a class: "teacher" or "student"."""
        return self._policy.role

    @property
    def browser(self) -> Browser | None:
        """The browser that shows it; None while there is none."""
        return self._browser

    async def start(self, browser: Browser, width: int, height: int) -> None:
        """Start the process, for this browser. Raises OSError."""
        self._browser = browser
        log = open_log("serve")
        try:
            furnish(self._folder)
            size = {"COLUMNS": str(width), "ROWS": str(height)}
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=log or asyncio.subprocess.DEVNULL, env=variables(self._policy, self._folder) | size,
                cwd=self._folder, start_new_session=True, limit=_LARGEST)
        except BaseException:
            self._remove()
            raise
        finally:
            self._begun.set()
            if log is not None:
                log.close()
        self._reading = asyncio.create_task(self._read())

    async def attach(self, browser: Browser, width: int, height: int) -> None:
        """Show it in this browser, and in no other."""
        before, self._browser = self._browser, browser
        if before is not None:
            await before.leave(ELSEWHERE)
        await self._begun.wait()
        if self._process is None:
            await browser.leave(LOST)
        await self._tell({"type": "attach", "width": width, "height": height})

    def detach(self, browser: Browser) -> None:
        if self._browser is browser:
            self._browser = None

    async def type(self, text: str) -> None:
        await self._send(_DATA, text.encode("utf-8", "replace"))

    async def resize(self, width: int, height: int) -> None:
        """The browser's terminal has another size, in columns and lines."""
        await self._tell({"type": "resize", "width": width, "height": height})

    async def tell(self, news: dict[str, object]) -> None:
        """Tell its process something that its screen shows."""
        if self._process is not None and self._ending is None:
            await self._tell(news)

    async def focus(self, has: bool) -> None:
        """Whether the browser's terminal has the keyboard."""
        await self._tell({"type": "focus" if has else "blur"})

    def memory(self, started: Started) -> int:
        """Bytes of its processes, without the files that they share with others, such as weights that are mapped."""
        used, self._known = 0, self._processes(started)
        for process in self._known:
            with suppress(psutil.Error):
                info = process.memory_info()
                used += info.rss - getattr(info, "shared", 0)
        return used

    async def end(self, why: str, at_once: bool = False) -> None:
        """End it, and wait until nothing of it is left."""
        if self._ending is None:
            self.why = why
            self._ending = asyncio.create_task(self._end(at_once))
        await asyncio.shield(self._ending)

    # -- the process ------------------------------------------------------------------------------
    def _processes(self, started: Started) -> list[psutil.Process]:
        """The process and those that it started, those first."""
        if self._process is None:  # not started yet
            return []
        with suppress(psutil.Error):
            found = [psutil.Process(self._process.pid)]
            for process in found:
                found += started.get(process.pid, ())
            return found[::-1]
        return []

    async def _read(self) -> None:
        """Draw what the process draws, until it ends."""
        out = self._process.stdout
        with suppress(asyncio.IncompleteReadError, ConnectionError, ValueError):
            while await out.readline() != _READY:
                if out.at_eof():
                    return await self._ended()
            self._drawn = True
            while True:
                kind = await out.readexactly(1)
                length = int.from_bytes(await out.readexactly(4), "big")
                if length > _LARGEST:
                    break
                data = await out.readexactly(length)
                if kind == _DATA and self._browser is not None:
                    await self._browser.draw(data)
                elif kind == _META and self._take_event is not None:
                    self._take_event(self, data)
        await self._ended()

    async def _ended(self) -> None:
        """The process has closed its end."""
        if self._ending is None:
            self.why = LEFT if self._drawn else LOST
            self._ending = asyncio.create_task(self._end(False))

    async def _end(self, at_once: bool) -> None:
        await self._begun.wait()
        if self._process is None:
            return
        self._known = self._processes(started_by()) or self._known
        if not at_once:
            with suppress(TimeoutError):  # it may wait for a browser that does not read
                await asyncio.wait_for(self._tell({"type": "quit"}), _PATIENCE)
                self._process.stdin.close()
                await asyncio.wait_for(self._process.wait(), _PATIENCE)
        for process in self._known:  # psutil knows them from others that have got their numbers
            with suppress(psutil.Error):
                process.kill()
        await self._process.wait()
        await asyncio.to_thread(psutil.wait_procs, self._known, _PATIENCE)
        self._reading.cancel()
        self._remove()
        self._over(self)
        if self._browser is not None:
            await self._browser.leave(self.why)

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _tell(self, message: dict[str, object]) -> None:
        await self._send(_META, json.dumps(message).encode())

    async def _send(self, kind: bytes, data: bytes) -> None:
        pipe = self._process and self._process.stdin
        if pipe is None or pipe.is_closing():  # it could not start, or has ended, which the reader says
            return
        with suppress(OSError, RuntimeError):
            pipe.write(kind + len(data).to_bytes(4, "big") + data)
            await pipe.drain()
