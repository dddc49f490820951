"""The datastore jobs of a chat session: what is estimated, built or probed, and what came of it.

Screens look at it a few times a second; ``changes`` grows with everything that can be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engines.datastores.datastore_events import Building, Built, DatastoreEvent, DatastoreList, Estimated, Probed
from engines.progress import BuildProgress
from engines.report.events import Failed
from spec_tui.session import engine_commands as commands
from spec_tui.session.jobs import Job, Jobs, SessionChange

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec

Question = tuple[str, str, str | None]
"""A probe: name of a datastore, text, and the prompt that the text begins to answer."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A command about the datastore ``name`` failed. ``do``: estimate, build, probe or remove; the rest as in
    ``Failed``."""

    do: str
    name: str
    message: str
    hint: str = ""
    kind: str = "failed"


class DatastoreJobs:
    """Datastores, as the engine works on them.

    Args:
        jobs: those of the session.
        listed: gets the datastores that fit, when they may have changed.

    Attributes:
        stages: of the running estimate or build so far, the last one still going on.
        estimated, probed: the last answers, None while one is awaited.
        ended: how the last build, estimate or removal ended, None while one is running.
    """

    def __init__(self, jobs: Jobs, listed: Callable[[DatastoreList], None]) -> None:
        self._jobs, self._listed = jobs, listed
        self.stages: dict[str, BuildProgress] = {}
        self.estimated: Estimated | None = None
        self.probed: Probed | Refused | None = None
        self.ended: Built | Refused | DatastoreList | None = None
        self.changes = 0
        self._news: Built | Refused | DatastoreList | None = None
        self._asked: Question | None = None
        self._next: Question | None = None

    @property
    def work(self) -> Job | None:
        """The running estimate or build, None without one."""
        job = self._jobs.at_work
        return job if job is not None and isinstance(
            job.command, commands.EstimateDatastore | commands.BuildDatastore) else None

    @property
    def builds(self) -> BuildSpec | None:
        work = self.work
        return work.command.spec if work is not None and isinstance(work.command, commands.BuildDatastore) else None

    @property
    def step(self) -> BuildProgress | None:
        """How far the stage under way is, None before the first."""
        return next(reversed(self.stages.values()), None)

    def refresh(self) -> None:
        """Ask which datastores fit now."""
        self._send(commands.ListDatastores(), "")

    def estimate(self, spec: BuildSpec) -> None:
        self._begin(commands.EstimateDatastore(spec), f"estimating {spec.name}")

    def build(self, spec: BuildSpec, fresh: bool = False) -> None:
        """Build a datastore, or continue its unfinished build."""
        self._begin(commands.BuildDatastore(spec, fresh), f"building {spec.name}")

    def remove(self, name: str) -> None:
        self.ended = None
        self._send(commands.RemoveDatastore(name), name)

    def probe(self, question: Question) -> None:
        """Probe a datastore. If questions come faster than answers, only the last one is asked."""
        if self._asked is None:
            self._asked, self._next = question, None
            self._send(commands.ProbeDatastore(*question), question[0])
        else:
            self._next = question

    def news(self) -> Built | Refused | DatastoreList | None:
        """How a job ended, once."""
        news, self._news = self._news, None
        return news

    def _begin(self, command: commands.EstimateDatastore | commands.BuildDatastore, doing: str) -> None:
        self.stages, self.estimated, self.ended = {}, None, None
        self.changes += 1
        self._send(command, command.spec.name, doing)

    def _send(self, command: commands.DatastoreCommand, name: str, doing: str = "") -> None:
        self._jobs.submit(command, partial(self._take, command, name), doing)

    def _take(
        self, command: commands.DatastoreCommand, name: str, event: DatastoreEvent | Failed
    ) -> SessionChange | None:
        self.changes += 1
        if isinstance(event, Building):
            self.stages[event.step.stage] = event.step
            return "progress"
        if isinstance(event, Failed):
            event = Refused(command.__struct_config__.tag, name, event.message, event.hint, event.kind)
        if isinstance(command, commands.ProbeDatastore):
            self.probed, self._asked = event, None
            if self._next is not None:
                self.probe(self._next)
            return None
        if isinstance(event, DatastoreList):
            self._listed(event)
        if isinstance(event, Estimated):
            self.estimated = event
        elif not isinstance(event, DatastoreList) or event.removed:
            self.ended = self._news = event
        return "stocked"
