"""The engine in this process, on a thread: for headless commands and tests. Decoding and the caller share a
core's time here, so numbers taken while drawing are not honest ones; screens use ``ProcessClient``."""

from __future__ import annotations

import threading
from collections import deque

import engines
from engines.events import Event, Failed
from engines.request import Request
from spec_tui.session.client import LoadRequest
from spec_tui.session.environment import prepare_this_process
from spec_tui.session.service import Loader, Service, load_command, run_command


class InProcessClient:
    """An ``EngineClient`` without a second process.

    Args:
        load: makes a decoder, ``engines.load`` by default.
    """

    def __init__(self, load: Loader = engines.load) -> None:
        prepare_this_process()
        self._load = load
        self._inbox: deque[Event] = deque()
        self._last_load: LoadRequest | None = None
        self._start()

    def load(self, request: LoadRequest) -> None:
        self._last_load = request
        self._send(load_command(request))

    def run(self, request: Request) -> None:
        self._send(run_command(request))

    def cancel(self) -> None:
        self._service.command({"do": "cancel"})

    def events(self) -> list[Event]:
        arrived: list[Event] = []
        while self._inbox:
            arrived.append(self._inbox.popleft())
        return arrived

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def restart(self) -> None:
        self.close()
        self._start()
        if self._last_load is not None:
            self._send(load_command(self._last_load))

    def close(self) -> None:
        """Ends after the round under way; a thread cannot be killed."""
        self._service.command({"do": "close"})
        self._thread.join()

    def _start(self) -> None:
        self._service = Service(self._inbox.append, self._load)
        self._thread = threading.Thread(target=self._service.serve, daemon=True)
        self._thread.start()

    def _send(self, record: dict) -> None:
        if self.alive:
            self._service.command(record)
        else:
            self._inbox.append(Failed("the engine is not running", "start it again to go on", "crashed"))
