"""What the chat screen costs while text streams: share of one core at 500 tokens a second, 2,000 tokens shown.

The whole screen at 120x40 with its real timers, drawing into a sink: every escape sequence is made, none is written
to a terminal. Processor time is measured, not wall time, so that other work on the machine disturbs it least.

    python tools/bench_ui.py [--seconds 10] [--rate 500] [--tokens 2000] [--width 120] [--height 40]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from textual.drivers.headless_driver import HeadlessDriver

from engines.report.events import Round
from engines.request import Request
from engines.wire import Event
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.tui.app import SpecTui
from tests.tui.fakes import ANSWER, FakeClient


class Sink(HeadlessDriver):
    """A driver that takes every escape sequence and writes none."""

    written = 0

    @property
    def is_headless(self) -> bool:
        return False  # else Textual does not make the sequences at all

    def write(self, data: str) -> None:
        Sink.written += len(data)


class PacedClient(FakeClient):
    """Gives out the run's rounds by the clock: ``rate`` tokens a second once ``go`` was called."""

    def __init__(self, rate: float, total: int) -> None:
        super().__init__(ANSWER * (1 + total // 130))
        self.rate, self._began, self._given = rate, 0.0, 0
        self._total = total

    def feed_tokens(self, count: int) -> None:
        """Let rounds through until this many tokens are out."""
        while count > 0 and self.pending:
            event = self.pending.popleft()
            self.say(event)
            count -= len(event.emitted) if isinstance(event, Round) else 0

    def go(self) -> None:
        self._began, self._given = time.perf_counter(), 0

    def events(self) -> list[tuple[int, Event]]:
        if self._began:
            due = int((time.perf_counter() - self._began) * self.rate) - self._given
            before = sum(len(e.emitted) for _, e in self._out if isinstance(e, Round))
            self.feed_tokens(due)
            self._given += sum(len(e.emitted) for _, e in self._out if isinstance(e, Round)) - before
        return super().events()


async def measure(args: argparse.Namespace) -> None:
    client = PacedClient(args.rate, args.tokens + int(args.rate * (args.seconds + 3)))
    request = Request((), max_new_tokens=10**6)
    app = SpecTui(client, LoadRequest("sample"), initial_request_options=request)
    app.driver_class = Sink
    task = asyncio.create_task(app.run_async(size=(args.width, args.height)))
    while app.session.phase != "ready":
        await asyncio.sleep(0.1)
    app.screen.ask("Write a function that merges two sorted lists.")
    client.feed_tokens(args.tokens)
    gc.freeze()  # the made-up events to come would not be in a real screen's memory
    await asyncio.sleep(1.0)
    idle = await _cost(args.seconds / 2)
    client.go()
    await asyncio.sleep(0.5)
    tokens, written, begun = client._given, Sink.written, time.perf_counter()
    busy = await _cost(args.seconds)
    wall = time.perf_counter() - begun
    tokens, written = client._given - tokens, Sink.written - written
    app.exit()
    await task  # until then Textual has standard output
    print(f"{args.width}x{args.height}, {args.tokens} tokens shown, {tokens / wall:.0f} tokens/s")
    print(f"UI: {shares(busy, idle)}, {busy * wall / tokens * 1e6:.0f} us a token, "
          f"{written / wall / 1024:.0f} KiB/s to the terminal")


def shares(busy: float, idle: float) -> str:
    """In words; ``bench.py`` reads them."""
    return f"{busy * 100:.1f}% of one core while streaming ({idle * 100:.1f}% waiting)"


async def _cost(seconds: float) -> float:
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--width", type=int, default=120)
    parser.add_argument("--height", type=int, default=40)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
