"""How screens reach an engine: the protocol of all clients, and what those of a live engine share."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from itertools import count
from typing import Protocol

from engines.report.events import Capabilities, Failed, Ready
from engines.wire import Event
from spec_tui.session.engine_commands import Cancel, Command

ENGINE, PLAYED = 0, -1
"""Ids of what no command asked for: the engine failed, and all that it was asked with it; a recording plays."""
AGAIN = "ctrl+r in the chat restarts it"
NOT_RUNNING = Failed("the engine process ended unexpectedly", AGAIN, "crashed")
NO_ANSWER = Failed("the engine does not answer", AGAIN, "crashed")


class EngineClient(Protocol):
    """What a screen needs of an engine. No call waits for an answer: everything that happens comes back as events."""

    def submit(self, command: Command) -> int:
        """Ask for this, after all that was asked before. Returns the job's id, which its events carry; the command says
        which they are."""

    def cancel(self, job: int, at_once: bool = False) -> None:
        """Stop a job: what is complete of it still comes, and its end. ``at_once``: nothing of it is to be kept, so an
        engine in a process of its own is ended, and another one started; all that was asked fails."""

    def events(self) -> list[tuple[int, Event]]:
        """What has arrived since the last call, in order, each with the id of its job, or ``ENGINE`` or ``PLAYED``."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; the last ``Ready`` may know better than the client did before it."""

    @property
    def pid(self) -> int | None:
        """Process id of the engine; None where it has no process of its own, now or ever."""

    @property
    def alive(self) -> bool:
        """Whether the engine can take commands; after a crash False, and one ``Failed`` has been delivered."""

    def restart(self) -> None:
        """A fresh engine, with nothing loaded."""

    def close(self) -> None:
        """Stop the engine and wait for it."""


class QueuedClient(EngineClient):
    """What clients with a live engine share: commands go out, events wait in a queue. Subclasses say how an engine is
    started, reached and stopped."""

    def __init__(self) -> None:
        self._inbox: deque[tuple[int, Event]] = deque()
        self._ids = count(1)
        self._capabilities = Capabilities()
        self._start()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def submit(self, command: Command) -> int:
        job = next(self._ids)
        if self.alive:
            self._deliver(job, command)
        else:
            self._inbox.append((job, NOT_RUNNING))
        return job

    def cancel(self, job: int, at_once: bool = False) -> None:
        if self.alive:
            self._deliver(job, Cancel())

    def events(self) -> list[tuple[int, Event]]:
        arrived: list[tuple[int, Event]] = []
        while self._inbox:
            arrived.append(self._inbox.popleft())
            if isinstance(arrived[-1][1], Ready):
                self._capabilities = arrived[-1][1].capabilities
        return arrived

    def restart(self) -> None:
        """A fresh engine, also where the old one still lives; a run in progress ends without ``Finished``."""
        self.close()
        self._start()

    @abstractmethod
    def _start(self) -> None:
        """Start an engine."""

    @abstractmethod
    def _deliver(self, job: int, command: Command) -> None:
        """Hand a command to a living engine."""
