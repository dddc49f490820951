"""The engine in its own process: the screen never slows decoding, a crash of one does not take the other, and
stop means stop.

A plain subprocess and lines of JSON rather than ``multiprocessing``: its spawn passes on ``sys.stderr.fileno()``, which
is -1 inside a running Textual app, so an engine could not be restarted from the screen; and nothing is unpickled.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from engines.report.events import Failed
from engines.wire import Event
from spec_tui.session.client import AGAIN, ENGINE, QueuedClient
from spec_tui.session.engine_commands import Close, Command, Load, command_line, read_event
from spec_tui.session.environment import child_environment, working_folder
from spec_tui.session.loader import LOADER
from spec_tui.session.log import log_path, open_log

_LEAVE = -1  # cores, to the screen that draws meanwhile
_GATHER = 0.04  # seconds that events gather in the pipe; the screen looks for them every 0.05
_MUCH, _MOST = 1 << 14, 1 << 20  # bytes: with so many read, more is waiting; that are read at a time


class ProcessClient(QueuedClient):
    """An ``EngineClient`` whose engine is a child process. The process starts with the client. Only ``close``,
    ``restart`` and a ``cancel`` at once wait until it has ended, and only ``patience`` seconds before it is killed.

    Args:
        factory: "module:function" that loads a model, quickly imported; another one is for tests.
        patience: how long ``close`` lets the engine end by itself before it is killed.
    """

    def __init__(self, factory: str = LOADER, patience: float = 1.5) -> None:
        self._factory = factory
        self._patience = patience
        self._child: _Child | None = None
        super().__init__()

    def submit(self, command: Command) -> int:
        if isinstance(command, Load) and not command.request.threads:
            command = Load(replace(command.request, threads=_LEAVE))
        return super().submit(command)

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.alive

    @property
    def pid(self) -> int | None:
        """The engine's process id, None where it could not be started or was closed."""
        return self._child.process.pid if self._child is not None else None

    def close(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.close(self._patience)

    def cancel(self, job: int, at_once: bool = False) -> None:
        if not at_once:
            super().cancel(job)
            return
        if self._child is not None:
            self._child.close(0.0)
        failed = Failed("loading was stopped", "what was downloaded stays", "cancelled")
        self._inbox = deque([(ENGINE, failed)])  # a new one: the ended engine's last event may still come
        self._start()

    def _deliver(self, job: int, command: Command) -> None:
        assert self._child is not None
        self._child.send((job, command))

    def _start(self) -> None:
        try:
            self._child = _Child(self._factory, self._inbox)
        except OSError as error:
            self._inbox.append((ENGINE, Failed(f"the engine could not be started: {error}", AGAIN, "crashed")))


class _Child:
    """One engine process and the two threads that serve its pipes."""

    def __init__(self, factory: str, inbox: deque[tuple[int, Event]]) -> None:
        log = open_log("engine")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "spec_tui.session.worker", "--factory", factory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log or subprocess.DEVNULL,
                env=child_environment(),
                cwd=working_folder(),
                start_new_session=os.name == "posix",  # the terminal's ctrl+c and ctrl+z are the parent's
            )
        finally:
            if log is not None:
                log.close()
        self.alive = True
        self._closing = False
        self._inbox = inbox
        self._outbox: queue.SimpleQueue[tuple[int, Command] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=target, daemon=True) for target in (self._read, self._write)]
        for thread in self._threads:
            thread.start()

    def send(self, command: tuple[int, Command] | None) -> None:
        """Queue a job's command, or None to end the thread that writes. That is a thread of its own because a long
        prompt may fill the pipe of a busy engine."""
        self._outbox.put(command)

    def close(self, patience: float) -> None:
        """Ask the process to end, then make it; returns when it has."""
        self._closing = True
        self.send((0, Close()))
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self._kill()
            self.process.wait()
        self.alive = False
        self.send(None)
        for thread in self._threads:
            thread.join(patience)

    def _kill(self) -> None:
        """The process, and what it has started: a compiler, a server."""
        if os.name == "posix":
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        else:
            self.process.kill()

    def _write(self) -> None:
        pipe = self.process.stdin
        try:
            while (command := self._outbox.get()) is not None:
                pipe.write(command_line(*command))
                pipe.flush()
            pipe.close()
        except OSError:  # the process is gone; the reading thread says so
            pass

    def _read(self) -> None:
        with self.process.stdout as pipe:
            for line in _lines(pipe.fileno()):
                if not self._closing:  # what comes later belongs to a session that is over
                    self._take(line)
        code = self.process.wait()
        if not self._closing:
            self._inbox.append((ENGINE, _crashed(code)))
        self.alive = False
        self._outbox.put(None)

    def _take(self, line: bytes) -> None:
        try:
            self._inbox.append(read_event(line))
        except ValueError:
            if line.endswith(b"\n"):  # else it is torn by the process's death
                self._inbox.append((ENGINE, Failed("the engine sent something unreadable", "this is a bug", "bug")))


def _lines(pipe: int) -> Iterator[bytes]:
    """The lines that come out of a pipe, as many at a time as have gathered: who waits for each line is woken for each,
    and takes that time from the engine where it computes on all cores."""
    rest = b""
    while data := os.read(pipe, _MOST):
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if len(data) < _MUCH:
            time.sleep(_GATHER)
    if rest:
        yield rest


def _crashed(code: int) -> Failed:
    if code >= 0:
        details = f"{AGAIN}; details: {log_path('engine')}"
        return Failed(f"the engine process ended (exit code {code})", details, "crashed")
    name = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    hint = f"if memory ran out, use a smaller model; {AGAIN}" if name == "SIGKILL" else AGAIN
    return Failed(f"the engine process was killed ({name})", hint, "crashed")
