"""The engine's side of a client: takes commands from any thread, loads and decodes on one, answers with
events."""

from __future__ import annotations

import gc
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from engines.errors import ModelUnavailable, SpecError
from engines.race.lanes import Race
from engines.race.runner import Racer, defer_events, race
from engines.report.answer import Answer
from engines.report.events import Auditing, Event, Failed, Loading, Ready
from engines.request import Request
from spec_tui.session import datastore_commands as datastores
from spec_tui.session.client import LoadRequest

if TYPE_CHECKING:
    from engines.datastores.building.datastore_service import DatastoreService


class Decoder(Racer, Protocol):
    """What is asked of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    ready: Ready
    workshop: DatastoreService


Loader = Callable[..., Decoder]
"""Takes the fields of ``LoadRequest`` and ``progress`` by name, as ``engines.load`` does."""


class _LoadingStopped(BaseException):
    """Leaves a loader by way of its progress report; not an Exception, so that no loader mistakes it for its
    own."""


@dataclass(eq=False, slots=True)
class _Job:
    record: dict[str, Any]
    stop: threading.Event = field(default_factory=threading.Event)


class Service:
    """Executes commands, one after the other.

    Args:
        emit: called with every event, always on the thread that runs ``serve``.
        load: makes a decoder.
    """

    def __init__(self, emit: Callable[[Event], None], load: Loader) -> None:
        self._emit = emit
        self._load_models = load
        self._decoder: Decoder | None = None
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._pending: list[_Job] = []  # waiting or under way; guarded by the lock
        self._lock = threading.Lock()

    def command(self, record: dict[str, Any]) -> None:
        """Take a command: load, run, race, audit, cancel, close, or one of ``datastores``. Any thread; returns at once.

        ``cancel`` stops the runs, races, audits and builds under way and waiting; without any, the loading (at its next
        progress report).
        """
        if record["do"] == "cancel":
            self._stop(only_runs=True)
        elif record["do"] == "close":
            self._stop(only_runs=False)
            self._queue.put(None)
        else:
            job = _Job(record)
            with self._lock:
                self._pending.append(job)
            self._queue.put(job)

    def serve(self) -> None:
        """Execute commands until ``close``."""
        while (job := self._queue.get()) is not None:
            try:
                self._execute(job)
            except SpecError as error:
                self._emit(Failed(error.message, error.hint, error.kind))
            except _LoadingStopped:
                self._emit(Failed("loading was stopped", "what was downloaded stays", "cancelled"))
            except Exception as error:  # whatever a model's code raises must reach the screen as an event
                traceback.print_exc()
                self._emit(_unexpected(error))
            finally:
                with self._lock:
                    self._pending.remove(job)

    def _stop(self, only_runs: bool) -> None:
        with self._lock:
            runs = [job for job in self._pending if job.record["do"] not in ("load", *datastores.AT_ONCE)]
            for job in runs if runs and only_runs else self._pending:
                job.stop.set()

    def _execute(self, job: _Job) -> None:
        if job.record["do"] == "load":
            self._load(LoadRequest(**{k: v for k, v in job.record.items() if k != "do"}), job.stop)
        elif job.record["do"] == "run":
            for event in self._loaded().run(Request.from_dict(job.record["request"]), cancelled=job.stop.is_set):
                self._emit(event)
        elif job.record["do"] == "race":
            for event in defer_events(race(self._loaded(), Race.from_dict(job.record["race"]), job.stop.is_set)):
                self._emit(event)
        elif job.record["do"] in datastores.COMMANDS:
            datastores.execute(job.record, lambda: self._loaded().workshop, self._emit, job.stop.is_set)
        else:
            self._audit(Answer.from_dict(job.record["answer"]), job.stop)

    def _load(self, request: LoadRequest, stop: threading.Event) -> None:
        def progress(event: Loading) -> None:
            if stop.is_set():
                raise _LoadingStopped
            self._emit(event)

        self._decoder = None  # before the next one: two large models rarely fit side by side
        gc.collect()
        decoder = self._load_models(**asdict(request), progress=progress)
        self._decoder = decoder
        self._emit(decoder.ready)

    def _audit(self, answer: Answer, stop: threading.Event) -> None:
        found = self._loaded().audit(answer, stop.is_set, lambda done: self._emit(Auditing(done)))
        self._emit(found or Failed("the audit was stopped", "start it again to see what it finds", "cancelled"))

    def _loaded(self) -> Decoder:
        if self._decoder is None:
            raise ModelUnavailable("no model is loaded", "load a model first")
        return self._decoder


def _unexpected(error: Exception) -> Failed:
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return Failed("out of memory", "try a smaller model, a shorter prompt or fewer tokens", "failed")
    hint = "this is a bug; the engine's log has the details"
    return Failed(f"the engine broke: {name}: {error}", hint, "bug")
