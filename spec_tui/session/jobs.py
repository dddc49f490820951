"""The one dispatcher: what the engine was asked and has not ended, and who gets what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Literal

from engines.datastores.datastore_events import Building
from engines.report.events import Auditing, Failed, Loading, Prefilling, Pricing
from engines.wire import Event
from spec_tui.session.client import EngineClient
from spec_tui.session.engine_commands import AT_ONCE, Command, Load, StartAdvice, StartRace

SessionChange = Literal[
    "progress", "ready", "failed", "dead", "began", "text", "finished", "broke", "baseline", "audited", "unaudited",
    "unmeasured", "priced", "stocked", "layers"]
"""What an event changed in a session, for the screen that draws it."""
_SILENCE = 5.0  # seconds without a word from a job that was stopped until it is said to be stuck
_LOOKS = 0.02  # seconds between two looks for what has arrived
Progress = Loading | Prefilling | Auditing | Pricing | Building


@dataclass(slots=True, eq=False)
class Job:
    """A command under way.

    Attributes:
        take: gets each of its events, and says what happened; None for nothing that the chat shows.
        doing: what the engine does meanwhile, in words: "answering".
        about: the turn that a run or an audit is of.
        progress: how far it is, if its last event said so.
        stopping: a person asked it to stop.
        heard: when that was, or when its last event came since.
    """

    id: int
    command: Command
    take: Callable[[Any], SessionChange | None]
    doing: str = ""
    about: Any = None
    progress: Progress | None = None
    stopping: bool = False
    heard: float = 0.0

    @property
    def stuck(self) -> bool:
        """Whether it was asked to stop, and nothing has come of it for long."""
        return self.stopping and monotonic() - self.heard > _SILENCE

    @property
    def timed(self) -> bool:
        """Whether whatever is drawn meanwhile may cost what is measured."""
        return isinstance(self.command, StartAdvice) or (
            isinstance(self.command, StartRace) and not self.command.race.live)


class Jobs:
    """Sends commands, and gives each event to the job that asked for it; those of a job that is over go nowhere.
    ``unasked``: gets what no job asked for: ``ENGINE`` or ``PLAYED``, and the event."""

    def __init__(self, client: EngineClient, unasked: Callable[[int, Any], set[SessionChange | None]]) -> None:
        self._client, self._unasked = client, unasked
        self._jobs: dict[int, Job] = {}
        self._happened: set[SessionChange | None] = set()  # of which nobody was told yet

    @property
    def loading(self) -> Job | None:
        return next((job for job in self._jobs.values() if isinstance(job.command, Load)), None)

    @property
    def at_work(self) -> Job | None:
        """What the engine is busy with, but for loading; what it does at once is none."""
        return next((job for job in self._jobs.values() if not isinstance(job.command, Load | AT_ONCE)), None)

    def submit(self, command: Command, take: Callable[[Any], SessionChange | None], doing: str = "",
               about: Any = None) -> Job:
        """Ask the engine for this, after all that it was asked before."""
        job = Job(self._client.submit(command), command, take, doing, about)
        self._jobs[job.id] = job
        return job

    def stop(self, job: Job) -> None:
        """Ask for the end of a job; it comes when the engine has come to a place where it can end."""
        if not job.stopping:
            job.stopping, job.heard = True, monotonic()
        self._client.cancel(job.id, at_once=isinstance(job.command, Load))

    def end(self, job: Job, seconds: float) -> None:
        """Stop a job, and hand out what comes until it ends, at most so long: what it has done so far is not lost."""
        self.stop(job)
        until = monotonic() + seconds
        while job.id in self._jobs and self._client.alive and monotonic() < until:
            self.dispatch()
            sleep(_LOOKS)

    def dispatch(self) -> set[SessionChange]:
        """Hand out what has arrived; what happened. Raises what the first of those who get it raised, when all is
        handed out: the end of another job may be in it. The next call then says what happened."""
        raised: list[Exception] = []
        for number, event in self._client.events():
            try:
                if number in self._jobs:
                    self._deliver(self._jobs[number], event)
                elif number <= 0:
                    self._happened |= self._unasked(number, event)
            except Exception as error:
                raised.append(error)
        if raised:
            raise raised[0]
        happened, self._happened = self._happened - {None}, set()
        return happened

    def fail(self, problem: Failed) -> None:
        """The engine failed, and with it all that is under way; ``dispatch`` says what happened."""
        for job in [*self._jobs.values()]:
            self._deliver(job, problem)

    def _deliver(self, job: Job, event: Event) -> None:
        job.progress, job.heard = event if isinstance(event, Progress) else None, monotonic()
        if isinstance(event, (Failed, job.command.ends)):
            self._jobs.pop(job.id, None)
        self._happened.add(job.take(event))
