"""The engine in this process, on a thread, so that a test sees both sides of a client."""

from __future__ import annotations

import threading

from spec_tui.session.client import QueuedClient
from spec_tui.session.engine_commands import Close, Command
from spec_tui.session.engine_service import Loader, Service
from spec_tui.session.environment import prepare_this_process
from spec_tui.session.loader import load


class InProcessClient(QueuedClient):
    """An ``EngineClient`` without a second process.

    Args:
        load: makes a decoder, ``spec_tui.session.loader.load`` by default.
    """

    def __init__(self, load: Loader = load) -> None:
        prepare_this_process()
        self._loader = load
        super().__init__()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """Ends after the round under way; a thread cannot be killed."""
        self._service.command(0, Close())
        self._thread.join()

    def _start(self) -> None:
        self._service = Service(lambda *said: self._inbox.append(said), self._loader)
        self._thread = threading.Thread(target=self._service.serve, daemon=True)
        self._thread.start()

    def _deliver(self, job: int, command: Command) -> None:
        self._service.command(job, command)
