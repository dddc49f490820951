"""Three ways to an engine behind one face: its own process, this process, a recorded trace."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from engines.methods import registry
from engines.methods.registry import EngineSpec
from engines.race.lanes import Race
from engines.report.answer import Answer
from engines.report.events import Capabilities, Event, Failed, Ready
from engines.request import Request

AGAIN = "start the engine again to go on"


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Models to load: folders or hub ids; None takes the shipped ones. dtype and device "auto" or a name. The other
    fields are those of ``engines.runtime.Runtime.load``."""

    model: str | None = None
    draft_model: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    revision: str | None = None
    draft_revision: str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    strict: bool = False
    threads: int | None = None


def load_command(request: LoadRequest) -> dict[str, Any]:
    """The command that loads models."""
    return {"do": "load", **asdict(request)}


def run_command(request: Request) -> dict[str, Any]:
    """The command that starts a run."""
    return {"do": "run", "request": request.to_dict()}


def audit_command(answer: Answer) -> dict[str, Any]:
    """The command that checks an answer."""
    return {"do": "audit", "answer": answer.to_dict()}


def race_command(race: Race) -> dict[str, Any]:
    """The command that starts a race."""
    return {"do": "race", "race": race.to_dict()}


@cache
def local_specs() -> Mapping[str, EngineSpec]:
    """The methods known here, by id."""
    return MappingProxyType({spec.id: spec for spec in registry.specs()})


class EngineClient(Protocol):
    """What a screen needs of an engine. No call blocks; everything that happens comes back as events."""

    def load(self, request: LoadRequest) -> None:
        """Load models: ``Loading``..., then ``Ready`` or ``Failed``."""

    def run(self, request: Request) -> None:
        """Start a run: ``Started``, ``Prefilled``, ``Round``..., then ``Finished`` or ``Failed``. One at a time."""

    def audit(self, answer: Answer) -> None:
        """Check an answer: ``Auditing``..., then ``Audited`` or ``Failed``. Waits for a run in progress."""

    def race(self, race: Race) -> None:
        """Start a race: ``RaceStarted``, ..., ``RaceFinished`` (``engines.race.events``), or ``Failed`` where it cannot
        go on. The events of its runs come when the last of them is over, unless it is live."""

    def tell(self, command: dict[str, Any]) -> None:
        """Send a command about datastores (``session.datastores``)."""

    def cancel(self) -> None:
        """Stop the run in progress after the round under way (``Finished`` with reason "cancelled"), or the race
        (``RaceFinished`` so, behind what is complete), or the audit
        (``Failed`` of kind "cancelled"), or the build (``Refused`` of kind "cancelled")."""

    def events(self) -> list[Event]:
        """What has arrived since the last call, in order; empty if nothing."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; the last ``Ready`` may know better than the client did before it."""

    @property
    def specs(self) -> Mapping[str, EngineSpec]:
        """The methods that this engine can run, by id. A recorded run may be of a method that is not among them."""

    @property
    def alive(self) -> bool:
        """Whether the engine can take requests; after a crash False, and one ``Failed`` has been delivered."""

    def restart(self) -> None:
        """A fresh engine after a crash; the last load is repeated."""

    def close(self) -> None:
        """Stop the engine and wait for it."""


class QueuedClient:
    """What clients with a live engine share: commands go out as records, events wait in a queue, a restart repeats the
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
    def specs(self) -> Mapping[str, EngineSpec]:
        return local_specs()

    def load(self, request: LoadRequest) -> None:
        self._last_load = request
        self._send(load_command(request))

    def run(self, request: Request) -> None:
        self._send(run_command(request))

    def audit(self, answer: Answer) -> None:
        self._send(audit_command(answer))

    def race(self, race: Race) -> None:
        self._send(race_command(race))

    def tell(self, command: dict[str, Any]) -> None:
        if self.alive:  # else the screen says what there is to say
            self._deliver(command)

    def cancel(self) -> None:
        if self.alive:
            self._deliver({"do": "cancel"})

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
            self._send(load_command(self._last_load))

    @property
    def alive(self) -> bool:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def _deliver(self, record: dict[str, Any]) -> None:
        """Hand a command to a living engine."""
        raise NotImplementedError

    def _send(self, record: dict[str, Any]) -> None:
        if self.alive:
            self._deliver(record)
        else:
            self._inbox.append(Failed("the engine is not running", AGAIN, "crashed"))
