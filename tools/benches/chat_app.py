"""The application, with a witness: says on a pipe when the screen took in the tokens of each answer.

    python chat_app.py PIPE [BACKEND MODEL]    (in a terminal; tools/benches/chat.py starts it)
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2]))

from benches.headless import MODEL
from engines.report import encoding
from engines.report.events import Failed, Finished, Prefilled, Ready, Round
from engines.report.metrics import measure
from engines.wire import Event
from spec_tui.session.engine_commands import Command, LoadRequest, Run
from spec_tui.session.loader import LOADER
from spec_tui.session.process import ProcessClient


class Witness(ProcessClient):
    """Notes what the screen takes, and when; a line of JSON for the loaded models and for each answer."""

    def __init__(self, pipe: int, factory: str) -> None:
        self._pipe = pipe
        super().__init__(factory)

    def submit(self, command: Command) -> int:
        if isinstance(command, Run):
            self._request, self._run = command.request, []
        return super().submit(command)

    def events(self) -> list[tuple[int, Event]]:
        arrived = super().events()
        if any(isinstance(event, Prefilled | Round) for _, event in arrived):
            self._last = self._clocks()
        for _, event in arrived:
            self._note(event)
        return arrived

    def _note(self, event: Event) -> None:
        if isinstance(event, Prefilled):
            self._first = self._last
        elif isinstance(event, Ready):
            self._say({"threads": event.threads, "backend": event.backend})
        elif isinstance(event, Finished):
            names = ("seconds", "screen_cpu", "engine_cpu")
            spent = {name: b - a for name, a, b in zip(names, self._first, self._last)}
            metrics = measure(self._run)
            self._say({
                "request": encoding.plain(self._request), "tokens": metrics.new_tokens - 1,
                "own_seconds": metrics.decode_seconds, **spent,
            })
        elif isinstance(event, Failed):
            self._say({"failed": f"{event.message}; {event.hint}"})
        if isinstance(event, Prefilled | Round):
            self._run.append(event)

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), cpu_of(self.pid)

    def _say(self, record: dict) -> None:
        os.write(self._pipe, json.dumps(record).encode() + b"\n")


def cpu_of(pid: int) -> float:
    """Seconds of processor time a process has had (Linux)."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        user, system = file.read().rpartition(b")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    from spec_tui.tui.app import SpecTui
    from spec_tui.tui.terminal_restore import restored

    pipe, other = int(sys.argv[1]), sys.argv[2:]
    with restored():  # and the application ends where its terminal does
        if other:
            SpecTui(Witness(pipe, LOADER), LoadRequest(backend=other[0], model=other[1])).run()
        else:
            SpecTui(Witness(pipe, LOADER), LoadRequest(MODEL)).run()
