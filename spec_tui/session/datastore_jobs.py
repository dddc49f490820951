"""The datastore jobs of a chat session: what is estimated, built or probed, and what came of it.

Folded from the engine's events. Screens look at it a few times a second; ``changes`` grows with everything that can be
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engines.datastores.datastore_events import (
    Building,
    Built,
    DatastoreEvent,
    DatastoreList,
    Estimated,
    Probed,
    Refused,
)
from engines.progress import BuildProgress
from spec_tui.session import engine_commands as commands

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec

Question = tuple[str, str, str | None]
"""A probe: name of a datastore, text, and the prompt that the text begins to answer."""


@dataclass(slots=True)
class DatastoreJob:
    """A running estimate or build: its stages so far, the last one still going on."""

    do: Literal["estimate", "build"]
    spec: BuildSpec
    stages: dict[str, BuildProgress] = field(default_factory=dict)
    stopping: bool = False


class DatastoreJobs:
    """Sends commands to the engine through ``send``.

    Attributes:
        work: the running estimate or build, None without one.
        estimated, probed: the last answers, None while one is awaited.
        ended: how the last build, estimate or removal ended, None while one is running.
    """

    def __init__(self, send: Callable[[commands.DatastoreCommand], None]) -> None:
        self._send = send
        self.work: DatastoreJob | None = None
        self.estimated: Estimated | None = None
        self.probed: Probed | Refused | None = None
        self.ended: Built | Refused | DatastoreList | None = None
        self.changes = 0
        self._news: Built | Refused | DatastoreList | None = None
        self._asked: Question | None = None
        self._next: Question | None = None

    @property
    def busy(self) -> bool:
        """Whether the engine is working on a datastore, and so on nothing else."""
        return self.work is not None

    def refresh(self) -> None:
        """Ask which datastores fit now."""
        self._send(commands.ListDatastores())

    def estimate(self, spec: BuildSpec) -> None:
        """Ask what a build will take."""
        self._begin(DatastoreJob("estimate", spec))
        self._send(commands.EstimateDatastore(spec))

    def build(self, spec: BuildSpec, fresh: bool = False) -> None:
        """Build a datastore, or continue its unfinished build."""
        self._begin(DatastoreJob("build", spec))
        self._send(commands.BuildDatastore(spec, fresh))

    def remove(self, name: str) -> None:
        """Delete a datastore."""
        self.ended = None
        self._send(commands.RemoveDatastore(name))

    def probe(self, question: Question) -> None:
        """Probe a datastore. If questions come faster than answers, only the last one is asked."""
        if self._asked is None:
            self._asked, self._next = question, None
            self._send(commands.ProbeDatastore(*question))
        else:
            self._next = question

    def stopping(self) -> None:
        """The user asked the engine to stop."""
        if self.work is not None:
            self.work.stopping = True
            self.changes += 1

    def lost(self, message: str, hint: str = "") -> None:
        """The engine process ended or broke."""
        self._asked = self._next = None
        if self.work is not None:
            self.take(Refused(self.work.do, self.work.spec.name, message, hint))

    def take(self, event: DatastoreEvent) -> None:
        """Fold the next event of the engine."""
        self.changes += 1
        if isinstance(event, Building):
            if self.work is not None:
                self.work.stages[event.step.stage] = event.step
        elif isinstance(event, Probed) or (isinstance(event, Refused) and event.do == "probe"):
            self._answered(event)
        elif isinstance(event, Estimated):
            self.estimated, self.work = event, None
        elif isinstance(event, DatastoreList):
            if event.removed:
                self.ended = self._news = event
        else:
            self.ended, self._news, self.work = event, event, None

    def news(self) -> Built | Refused | DatastoreList | None:
        """How a job ended, once."""
        news, self._news = self._news, None
        return news

    def _begin(self, work: DatastoreJob) -> None:
        self.work, self.estimated, self.ended = work, None, None
        self.changes += 1

    def _answered(self, event: Probed | Refused) -> None:
        self.probed, self._asked = event, None
        if self._next is not None:
            self.probe(self._next)
