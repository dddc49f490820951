"""Datastores in a sitting: what is being built or asked, and what came of it; folded from what the engine says.

Screens look at it a few times a second; ``changes`` grows with everything that can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engines.datastores.events import Building, Built, Estimated, Probed, Refused, Stocked, StockEvent
from spec_tui.session import commands

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec

Question = tuple[str, str, str | None]
"""What is probed: name of a datastore, text, and the prompt that it is the beginning of the answer to."""


@dataclass(slots=True)
class DatastoreJob:
    """An estimate or a build under way: its stages so far, the last one running."""

    do: Literal["estimate", "build"]
    order: BuildSpec
    stages: dict[str, Building] = field(default_factory=dict)
    stopping: bool = False


class DatastoreJobs:
    """Asks the engine through ``tell``.

    Attributes:
        work: the estimate or build under way, None without one.
        estimated, probed: the last answers, None while one is awaited.
        ended: how the last build, estimate or removal ended, None while one goes on.
    """

    def __init__(self, tell: Callable[[commands.DatastoreCommand], None]) -> None:
        self._tell = tell
        self.work: DatastoreJob | None = None
        self.estimated: Estimated | None = None
        self.probed: Probed | Refused | None = None
        self.ended: Built | Refused | Stocked | None = None
        self.changes = 0
        self._news: Built | Refused | Stocked | None = None
        self._asked: Question | None = None
        self._next: Question | None = None

    @property
    def busy(self) -> bool:
        """Whether the engine is at work on a datastore, and so on nothing else."""
        return self.work is not None

    def look(self) -> None:
        """Ask which datastores fit now."""
        self._tell(commands.ListDatastores())

    def estimate(self, order: BuildSpec) -> None:
        """Ask what a build will take."""
        self._begin(DatastoreJob("estimate", order))
        self._tell(commands.EstimateDatastore(order))

    def build(self, order: BuildSpec, fresh: bool = False) -> None:
        """Build, or go on with, what was ordered."""
        self._begin(DatastoreJob("build", order))
        self._tell(commands.BuildDatastore(order, fresh))

    def remove(self, name: str) -> None:
        """Delete a datastore."""
        self.ended = None
        self._tell(commands.RemoveDatastore(name))

    def probe(self, question: Question) -> None:
        """Look something up; of questions that come faster than answers the last one is asked."""
        if self._asked is None:
            self._asked, self._next = question, None
            self._tell(commands.ProbeDatastore(*question))
        else:
            self._next = question

    def stopping(self) -> None:
        """The engine was told to stop."""
        if self.work is not None:
            self.work.stopping = True
            self.changes += 1

    def lost(self, message: str, hint: str = "") -> None:
        """The engine ended, or broke at this."""
        self._asked = self._next = None
        if self.work is not None:
            self.take(Refused(self.work.do, self.work.order.name, message, hint))

    def take(self, event: StockEvent) -> None:
        """What the engine says."""
        self.changes += 1
        if isinstance(event, Building):
            if self.work is not None:
                self.work.stages[event.stage] = event
        elif isinstance(event, Probed) or (isinstance(event, Refused) and event.do == "probe"):
            self._answered(event)
        elif isinstance(event, Estimated):
            self.estimated, self.work = event, None
        elif isinstance(event, Stocked):
            if event.removed:
                self.ended = self._news = event
        else:
            self.ended, self._news, self.work = event, event, None

    def news(self) -> Built | Refused | Stocked | None:
        """How something ended, once."""
        news, self._news = self._news, None
        return news

    def _begin(self, work: DatastoreJob) -> None:
        self.work, self.estimated, self.ended = work, None, None
        self.changes += 1

    def _answered(self, event: Probed | Refused) -> None:
        self.probed, self._asked = event, None
        if self._next is not None:
            self.probe(self._next)
