"""How screens reach an engine: the protocol of all clients, and what those of a live engine share."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Protocol

from engines import methods
from engines.bench.suite import Suite
from engines.methods.spec import MethodSpec
from engines.race.lanes import Race
from engines.report.answer import Answer
from engines.report.events import Capabilities, Failed, Ready
from engines.request import Request
from engines.wire import Event
from spec_tui.session.engine_commands import (
    Audit,
    Cancel,
    Command,
    DatastoreCommand,
    Load,
    LoadRequest,
    MeasurePrice,
    Run,
    StartAdvice,
    StartRace,
)

AGAIN = "start the engine again to continue"


@cache
def local_specs() -> Mapping[str, MethodSpec]:
    """The methods known here, by id."""
    return MappingProxyType({spec.id: spec for spec in methods.specs()})


class EngineClient(Protocol):
    """What a screen needs of an engine. No call blocks; everything that happens comes back as events."""

    def load(self, request: LoadRequest) -> None:
        """Load models: ``Loading``..., then ``Ready`` or ``Failed``."""

    def run(self, request: Request) -> None:
        """Start a run: ``Started``, ``Prefilled``, ``Round``..., then ``Finished`` or ``Failed``. One at a time."""

    def audit(self, answer: Answer) -> None:
        """Check an answer: ``Auditing``..., then ``Audited`` or ``Failed``. Waits for a run in progress."""

    def measure_price(self) -> None:
        """Measure t(n) of a served model: ``Pricing``..., then ``PriceMeasured`` or ``Failed``."""

    def race(self, race: Race) -> None:
        """Start a race: ``RaceStarted``, ..., ``RaceFinished`` (``engines.race.race_events``), or ``Failed`` where it
        cannot go on. The events of its runs come when the last of them is over, unless it is live."""

    def advise(self, suite: Suite, request: Request, seconds: float) -> None:
        """Look for the best engine and settings: ``AdviceStarted``, for each round ``ScreeningStarted``, its race and
        ``ScreeningFinished``, then ``AdviceFinished`` (``engines.advice.advice_events``), or ``Failed``."""

    def tell(self, command: DatastoreCommand) -> None:
        """Send a command about datastores; ``spec_tui.session.engine_commands`` says what answers."""

    def cancel(self) -> None:
        """Stop the run in progress after the round under way (``Finished`` with reason "cancelled"), or the race
        (``RaceFinished`` with reason "cancelled", after what is complete), or the audit (``Failed`` of kind
        "cancelled"), or the build (``Refused`` of kind "cancelled")."""

    def stop_loading(self) -> None:
        """Stop loading models: ``Failed`` of kind "cancelled". Where the engine has a process of its own, at once."""

    def events(self) -> list[Event]:
        """What has arrived since the last call, in order; empty if nothing."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; the last ``Ready`` may know better than the client did before it."""

    @property
    def specs(self) -> Mapping[str, MethodSpec]:
        """The methods that this engine can run, by id. A recorded run may be of a method that is not among them."""

    @property
    def pid(self) -> int | None:
        """Process id of the engine; None where it has no process of its own, now or ever."""

    @property
    def alive(self) -> bool:
        """Whether the engine can take requests; after a crash False, and one ``Failed`` has been delivered."""

    def restart(self) -> None:
        """A fresh engine after a crash; the last load is repeated."""

    def close(self) -> None:
        """Stop the engine and wait for it."""


class QueuedClient(EngineClient):
    """What clients with a live engine share: commands go out, events wait in a queue, a restart repeats the
    last load. Subclasses say how an engine is started, reached and stopped."""

    def __init__(self) -> None:
        self._inbox: deque[Event] = deque()
        self._last_load: LoadRequest | None = None
        self._capabilities = Capabilities()
        self._start()

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def specs(self) -> Mapping[str, MethodSpec]:
        return local_specs()

    def load(self, request: LoadRequest) -> None:
        self._last_load = request
        self._send(Load(request))

    def run(self, request: Request) -> None:
        self._send(Run(request))

    def audit(self, answer: Answer) -> None:
        self._send(Audit(answer))

    def measure_price(self) -> None:
        self._send(MeasurePrice())

    def race(self, race: Race) -> None:
        self._send(StartRace(race))

    def advise(self, suite: Suite, request: Request, seconds: float) -> None:
        self._send(StartAdvice(suite, request, seconds))

    def tell(self, command: DatastoreCommand) -> None:
        if self.alive:  # else the screen says what there is to say
            self._deliver(command)

    def cancel(self) -> None:
        if self.alive:
            self._deliver(Cancel())

    def stop_loading(self) -> None:
        self.cancel()

    def events(self) -> list[Event]:
        arrived: list[Event] = []
        while self._inbox:
            arrived.append(self._inbox.popleft())
            if isinstance(arrived[-1], Ready):
                self._capabilities = arrived[-1].capabilities
        return arrived

    def restart(self) -> None:
        """A fresh engine, also where the old one still lives; a run in progress ends without ``Finished``."""
        self.close()
        self._start()
        if self._last_load is not None:
            self._send(Load(self._last_load))

    @abstractmethod
    def _start(self) -> None:
        """Start an engine."""

    @abstractmethod
    def _deliver(self, command: Command) -> None:
        """Hand a command to a living engine."""

    def _send(self, command: Command) -> None:
        if self.alive:
            self._deliver(command)
        else:
            self._inbox.append(Failed("the engine is not running", AGAIN, "crashed"))
