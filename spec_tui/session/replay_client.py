"""A recorded trace as an engine: its events again, by the engine's own clock or faster or slower. No model, no torch.

What takes place on the clock: the prefill when it was done, each round when it was done; drawing, loading and audits
took no part in it.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate

from engines.methods.spec import MethodSpec
from engines.race.lanes import Race
from engines.report.answer import Answer
from engines.report.event_types import REPLAY
from engines.report.events import Capabilities, Failed, Prefilled, Ready, Round, Started
from engines.report.traces import Trace
from engines.request import Request
from engines.wire import Event
from spec_tui.session.client import LoadRequest, local_specs
from spec_tui.session.commands import DatastoreCommand

SPEEDS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""The steps of ``faster`` and ``slower``; 1 is as fast as it was."""


def durations(events: Iterable[Event]) -> list[float]:
    """Seconds of the engine's clock that each event stands for."""
    return [_duration(event) for event in events]


def _duration(event: Event) -> float:
    if isinstance(event, Prefilled):
        return event.seconds
    if isinstance(event, Round):
        return event.draft_seconds + event.verify_seconds + event.other_seconds
    return 0.0


class ReplayClock:
    """A virtual clock over a list of events: speed, pause, seek. Nothing runs; ``due`` says what its time has come for.

    Args:
        events: of one run.
        speed: how many seconds of the run pass in one; above 0, infinity for all at once.
        clock: seconds that pass, for tests.
    """

    def __init__(
        self, events: tuple[Event, ...], speed: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.events = events
        self.times = list(accumulate(durations(events)))
        self._clock, self._speed, self._paused = clock, speed, False
        self._at, self._since = 0.0, clock()
        self._given = 0

    @property
    def length(self) -> float:
        """Seconds of the run."""
        return self.times[-1] if self.times else 0.0

    @property
    def now(self) -> float:
        """Where it stands, in seconds of the run."""
        if self._paused or self.over:
            return self._at
        passed = self._clock() - self._since
        return min(self.length, self._at + passed * self._speed if passed > 0 else self._at)

    @property
    def over(self) -> bool:
        """Everything was given out."""
        return self._given >= len(self.events)

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._hold()
        self._speed = speed

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._hold()
        self._paused = paused

    def due(self) -> list[Event]:
        """The events whose time has come since the last call."""
        until = len(self.events) if self._speed == float("inf") and not self._paused else bisect_right(
            self.times, self.now)
        return self._give(until)

    def step(self) -> list[Event]:
        """The events up to and with the next one that takes time, whatever the clock says."""
        until = self._given
        while until < len(self.events):
            until += 1
            if isinstance(self.events[until - 1], Prefilled | Round):
                break
        self._at, self._since = max(self._at, self.times[until - 1] if until else 0.0), self._clock()
        return self._give(until)

    def rest(self) -> list[Event]:
        """All that is left, now."""
        return self._give(len(self.events))

    def _give(self, until: int) -> list[Event]:
        given = list(self.events[self._given : until])
        self._given = max(self._given, until)
        if self.over:
            self._at = self.length
        return given

    def _hold(self) -> None:
        self._at, self._since = self.now, self._clock()


class ReplayClient:
    """An ``EngineClient`` over a trace. ``run`` plays its runs, one each time, whatever is asked; an audit is refused,
    since there is no model.

    Args:
        trace: what to play; at least one run.
        speed: see ``ReplayClock``.
        clock: seconds that pass, for tests.
    """

    def __init__(self, trace: Trace, speed: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.trace, self.runs = trace, trace.runs
        self._clock, self._speed = clock, speed
        self._paused, self._next = False, 0
        self._player: ReplayClock | None = None
        self._said: list[Event] = []
        self._alive = True

    # -- the protocol ---------------------------------------------------------------------------
    def load(self, request: LoadRequest) -> None:
        """``Ready`` at once, as far as the trace knows the model."""
        self._said.append(ready_of(self.runs[0][0]) if self.runs else Failed("the trace holds no run", "", "usage"))

    def run(self, request: Request) -> None:
        """Play the next run; after the last one the first again."""
        self.play(self._next)

    def audit(self, answer: Answer) -> None:
        self._said.append(Failed("a replay has no model to audit with", "audit when it runs: --audit", "usage"))

    def race(self, race: Race) -> None:
        self._said.append(Failed("a replay has no model to race", "start the application without a trace", "usage"))

    def tell(self, command: DatastoreCommand) -> None:
        """There are no datastores to tell anything."""

    def cancel(self) -> None:
        """The rest of the run at once: what was recorded cannot be stopped."""
        if self._player is not None:
            self._said += self._player.rest()

    @property
    def capabilities(self) -> Capabilities:
        return REPLAY

    @property
    def specs(self) -> Mapping[str, MethodSpec]:
        return local_specs()

    def events(self) -> list[Event]:
        said, self._said = self._said, []
        return said + (self._player.due() if self._player is not None else [])

    @property
    def alive(self) -> bool:
        return self._alive

    def restart(self) -> None:
        self._alive, self._player, self._next = True, None, 0

    def close(self) -> None:
        self._alive = False

    # -- playing --------------------------------------------------------------------------------
    def play(self, number: int = 0) -> None:
        """Play this run from its beginning."""
        self._player = ReplayClock(self.runs[number], self._speed, self._clock)
        self._player.paused = self._paused
        self._next = (number + 1) % len(self.runs)

    @property
    def player(self) -> ReplayClock | None:
        """The clock of the run that plays, None before one."""
        return self._player

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, speed: float) -> None:
        self._speed = speed
        if self._player is not None:
            self._player.speed = speed

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused = paused
        if self._player is not None:
            self._player.paused = paused

    def faster(self) -> float:
        """The next step up; the speed that is now."""
        self.speed = next((speed for speed in SPEEDS if speed > self._speed * 1.01), self._speed)
        return self._speed

    def slower(self) -> float:
        """The next step down; the speed that is now."""
        self.speed = next((speed for speed in reversed(SPEEDS) if speed < self._speed * 0.99), self._speed)
        return self._speed

    def step(self) -> None:
        """One more round, though it is paused."""
        if self._player is not None:
            self._said += self._player.step()


def ready_of(started: Started) -> Ready:
    """What a trace knows of the model that wrote it; what it does not know is None."""
    return Ready(
        model=started.model, dtype=started.dtype, device=started.device, parameters=None, vocab_size=None,
        context_limit=None, chat_template=True, draft_model=started.draft_model, price=started.price,
        draft_price=started.draft_price, capabilities=REPLAY,
    )


def request_of(started: Started) -> Request:
    """What was asked, as the run says it."""
    turns = started.conversation or (("user", ""),)
    return Request(
        conversation=turns, engine=started.engine, options=dict(started.options), law=started.law,
        temperature=started.temperature, top_p=started.top_p, top_k=started.top_k, seed=started.seed,
        max_new_tokens=started.max_new_tokens, raw=turns[-1][0] == "raw", datastores=started.datastores,
    )
