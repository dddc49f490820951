"""The engine's side of a client: takes commands from any thread, loads and decodes on one, answers with events."""

from __future__ import annotations

import gc
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from engines.datastores.datastore_events import Building
from engines.errors import PLUG_IN_ERRORS, ModelUnavailable, SpecError, UsageProblem
from engines.progress import SomeProgress
from engines.race.peers import Peers
from engines.race.runner import Racer, defer_events, race
from engines.report import encoding
from engines.report.events import Auditing, Failed, Loading, Pricing, Ready
from engines.wire import Event
from spec_tui.session import engine_commands as commands
from spec_tui.session.advice_setup import advice
from spec_tui.session.host_access import HostAccess

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.service import DatastoreService


class Decoder(Racer, Protocol):
    """What is asked of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    ready: Ready
    datastore_service: DatastoreService


Loader = Callable[[commands.LoadRequest, Callable[[Loading], None]], Decoder]
"""Makes a decoder of what is asked for, and tells of its progress, also where the decoder loads something later."""


class _JobStopped(BaseException):
    """Leaves a loader or a build by way of its progress report; not an Exception, so that neither takes it for its
    own."""


@dataclass(eq=False, slots=True)
class _Job:
    id: int
    command: commands.Command
    emit: Callable[[Event], None]
    stop: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        if self.stop.is_set():
            raise _JobStopped


class Service:
    """Executes commands, one after the other.

    Args:
        emit: called with every event and the id of its job, always on the thread that runs ``serve``.
        load: makes a decoder.
    """

    def __init__(self, emit: Callable[[int, Event], None], load: Loader) -> None:
        self._emit = emit
        self._load_models = load
        self._access = HostAccess.here()
        self._decoder: Decoder | None = None
        self._request = commands.LoadRequest()  # that it was loaded by
        self._loading: _Job | None = None  # the job that loads something, or did last
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._pending: list[_Job] = []  # waiting or under way; guarded by the lock
        self._lock = threading.Lock()

    def command(self, number: int, command: commands.Command) -> None:
        """Take a command from any thread; returns at once. ``number``: id of the job that it is, of ``Cancel`` that it
        stops; what is over already is not stopped."""
        if isinstance(command, commands.Cancel | commands.Close):
            with self._lock:
                for job in self._pending:
                    if isinstance(command, commands.Close) or job.id == number:
                        job.stop.set()
            if isinstance(command, commands.Close):
                self._queue.put(None)
            return
        job = _Job(number, command, partial(self._emit, number))
        with self._lock:
            self._pending.append(job)
        self._queue.put(job)

    def serve(self) -> None:
        """Execute commands until ``close``."""
        while (job := self._queue.get()) is not None:
            try:
                self._execute(job)
            except SpecError as error:
                job.emit(Failed(error.message, error.hint, error.kind))
            except _JobStopped:
                job.emit(_stopped(job.command))
            except PLUG_IN_ERRORS as error:  # whatever a model's code raises must reach the screen too
                traceback.print_exc()
                job.emit(_unexpected(error))
            finally:
                with self._lock:
                    self._pending.remove(job)

    def _execute(self, job: _Job) -> None:
        self._access.check(job.command, self._decoder.ready.host if self._decoder is not None else "")
        emit, stopped = job.emit, job.stop.is_set
        match job.command:
            case commands.Load(request):
                self._load(request, job)
            case commands.Run(request):
                for event in self._loaded().run(request, cancelled=stopped, progress=emit):
                    emit(event)
            case commands.StartRace(asked):
                with Peers(self._loaded()) as racer:
                    for event in defer_events(race(racer, asked, stopped, emit)):
                        emit(event)
            case commands.StartAdvice(suite, request, seconds):
                decoder, suite = self._loaded(), _suite(suite)
                for event in advice(decoder, suite, request, seconds, stopped, emit):
                    emit(event)
            case commands.Audit(answer):
                self._loading = job  # the first audit of a served model loads one here
                found = self._loaded().audit(answer, stopped, lambda done: emit(Auditing(done)))
                emit(found or _stopped(job.command))
            case commands.MeasurePrice():
                found = self._loaded().measure_price(stopped, lambda done: emit(Pricing(done)))
                emit(found or _stopped(job.command))
            case command:
                self._execute_on_datastores(command, job)

    def _load(self, request: commands.LoadRequest, job: _Job) -> None:
        self._loading = job
        before, self._decoder = self._decoder, None  # before the next one: two large models rarely fit side by side
        if hasattr(before, "with_draft_model") and _other_draft(self._request, request):
            decoder = before.with_draft_model(request.draft_model, self._progress)
        else:
            before = None
            gc.collect()
            decoder = self._load_models(request, self._progress)
        self._decoder, self._request = decoder, request
        job.emit(decoder.ready)

    def _progress(self, event: Loading) -> None:
        """Tell the job that loads how far that is, unless it was stopped."""
        self._loading.check()
        self._loading.emit(event)

    def _execute_on_datastores(self, command: commands.DatastoreCommand, job: _Job) -> None:
        datastores = self._loaded().datastore_service
        if isinstance(command, commands.ListDatastores):
            job.emit(datastores.list_datastores())
        elif isinstance(command, commands.EstimateDatastore | commands.BuildDatastore):
            spec = _build_spec(command.spec)
            progress = SomeProgress(lambda step: job.emit(Building(spec.name, step)), job.check)
            if isinstance(command, commands.EstimateDatastore):
                job.emit(datastores.estimate(spec, progress))
            else:
                job.emit(datastores.build(spec, progress, command.fresh))
                job.emit(datastores.list_datastores())
        elif isinstance(command, commands.RemoveDatastore):
            job.emit(datastores.remove(command.name))
        else:
            job.emit(datastores.probe(command.name, command.text, command.prompt))

    def _loaded(self) -> Decoder:
        if self._decoder is None:
            raise ModelUnavailable("no model is loaded", "load a model first")
        return self._decoder


def _stopped(command: commands.Command) -> Failed:
    """How a job ends that was stopped, where what there is of it is no result."""
    what, hint = {
        "load": ("loading", "what was downloaded stays"),
        "audit": ("the audit", "start it again to see what it finds"),
        "price": ("the measurement", "start it again to see t(n)"),
        "estimate": ("the estimate", ""),
        "build": ("the build", "what was done of it is kept, and the same build continues it"),
    }[command.__struct_config__.tag]
    return Failed(f"{what} was stopped", hint, "cancelled")


def _other_draft(loaded: commands.LoadRequest, wanted: commands.LoadRequest) -> bool:
    """Whether another draft model is named, and all else is as it was loaded."""
    target = replace(wanted, draft_model=loaded.draft_model, draft_revision=loaded.draft_revision)
    return wanted.draft_model is not None and wanted.draft_revision is None and wanted != loaded == target


def _suite(data: Any) -> Any:
    from engines.bench.suite import Suite

    return encoding.build(Suite, encoding.plain(data))


def _build_spec(data: Any) -> BuildSpec:
    from engines.datastores.building.build_spec import BuildSpec

    try:
        return encoding.build(BuildSpec, encoding.plain(data))
    except ValueError as error:
        raise UsageProblem(f"this is not a valid request for a datastore: {error}", "fill in the form again") from None


def _unexpected(error: BaseException) -> Failed:
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return Failed("out of memory", "try a smaller model, a shorter prompt or fewer tokens", "failed")
    hint = "this is a bug; the engine's log has the details"
    return Failed(f"the engine broke: {name}: {error}", hint, "bug")
