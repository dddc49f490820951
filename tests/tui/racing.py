"""Races that need no model: the runner of ``engines`` over runs that are invented, let through event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from textual.pilot import Pilot

from engines.errors import RunFailed
from engines.race.lanes import Lane, Race
from engines.race.race_events import LaneFinished, LaneStarted
from engines.race.runner import defer_events, race
from engines.report import encoding
from engines.report.answer import Answer
from engines.report.events import Failed, Finished
from engines.request import Request
from engines.wire import Event
from spec_tui.session.engine_commands import Command, LoadRequest, StartRace
from spec_tui.tui.app import SpecTui
from spec_tui.tui.screens.race import RaceScreen
from tests.tui.fakes import ANSWER, RETRIEVING, FakeClient, finding, hash_id, pieces, script

LANES = ("autoregressive", "pld", "draft", "rest")


class FakeRacer:
    """Invents runs. ``texts`` by engine, the common one where it is not there; ``breaks`` are engines that fail after
    their warm-up; ``finds`` is what an audit of a text that is not the common one finds."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.breaks: set[str] = set()
        self.finds: tuple = ("tie", 3, 0.001)

    def run(self, request: Request, cancelled: Callable[[], bool] = lambda: False, progress=None) -> Iterator[Event]:
        if request.engine in self.breaks and request.max_new_tokens > 32:
            raise RunFailed("it broke", "mend it")
        for event in script(request, self.texts.get(request.engine, ANSWER), seed=len(request.engine)):
            if cancelled():
                yield Finished("cancelled", (), "")
                return
            yield event

    def audit(self, answer: Answer, cancelled=lambda: False, progress=lambda done: None):
        common = tuple(hash_id(word) for word in pieces(ANSWER))[: len(answer.tokens)]
        return finding(answer, *(self.finds if answer.tokens != common else ("identical",)))

    def forget(self) -> None: ...

    def forget_acceptance(self) -> None: ...

    def memory(self, engine: str, options: dict, rows: int, draft_model: str = "") -> int:
        return 48_000_000 + 7_000_000 * (engine == "draft") + 1000 * rows


class RacingClient(FakeClient):
    """A client that races; ``race_on(n)`` lets so many events through, all of them without a number."""

    def __init__(self, **kwargs) -> None:
        super().__init__(ready=RETRIEVING, **kwargs)
        self.racer, self.races = FakeRacer(), []
        self._stop = False
        self._race: Iterator[Event] = iter(())

    def submit(self, command: Command) -> int:
        if isinstance(command, StartRace):
            self.races.append(encoding.build(Race, encoding.plain(command.race)))
            self._stop = False
            self._race = self._told(command.race)
        return super().submit(command)

    def _told(self, asked: Race) -> Iterator[Event]:
        try:
            for event in defer_events(race(self.racer, asked, lambda: self._stop)):
                yield self._still(event)
        except RunFailed as error:
            yield Failed(error.message, error.hint, error.kind)

    @staticmethod
    def _still(event: Event) -> Event:
        """Without what this machine happens to do."""
        if isinstance(event, LaneFinished):
            return replace(event, other_seconds=0.0, waited_seconds=0.0)
        return event

    def cancel(self, job: int, at_once: bool = False) -> None:
        super().cancel(job, at_once)
        self._stop = True

    def race_on(self, count: int | None = None) -> list[Event]:
        """Let events through; those that were."""
        out = []
        for event in self._race:
            out.append(event)
            if count is not None and len(out) >= count:
                break
        self.say(*out)
        return out

    def race_to(self, kind: type, number: int = 1) -> Event:
        """Let events through up to the ``number``-th of a kind that counts (no warm-up)."""
        seen = 0
        while True:
            (event,) = self.race_on(1)
            seen += isinstance(event, kind) and not (isinstance(event, LaneStarted) and event.warm_up)
            if seen == number:
                return event


@dataclass
class Racing:
    """An open race screen and its parts."""

    app: SpecTui
    client: RacingClient
    pilot: Pilot
    screen: RaceScreen

    @property
    def controller(self):
        return self.screen.controller

    @property
    def said(self) -> str:
        return " ".join(row.strip() for row in self.screen.query_one("#race-said").text_rows())

    def rows(self, name: str) -> list[str]:
        return self.screen.query_one(name).text_rows()

    async def settle(self) -> None:
        await self.pilot.pause()
        self.app.screen_stack[0].pump()
        self.screen.look()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def whole(self, skip: bool = True) -> None:
        """Start the race and run it to its end, and to that of the photo finish."""
        await self.press("enter")
        self.client.race_on()
        await self.settle()
        if skip and self.controller.replay is not None:
            await self.press("end")


@asynccontextmanager
async def racing(size=(120, 40), repeats=1, lanes: tuple[Lane, ...] | None = None, request=None, client=None):
    """The race screen over the chat, nothing started."""
    client = client or RacingClient()
    app = SpecTui(client, LoadRequest(), initial_request_options=request or Request((), engine="draft"))
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        app.screen.pump()
        await pilot.press("escape", "r")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, RaceScreen)
        setup = screen.controller.setup
        screen.controller.setup = replace(setup, repeats=repeats, lanes=lanes or setup.lanes)
        opened = Racing(app, client, pilot, screen)
        await opened.settle()
        yield opened
