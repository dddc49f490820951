"""The engine's side of a client: takes commands from any thread, loads and decodes on one, answers with
events."""

from __future__ import annotations

import gc
import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engines.datastores.datastore_events import Building, Refused
from engines.errors import ModelUnavailable, SpecError, UsageProblem
from engines.race.peers import Peers
from engines.race.runner import Racer, defer_events, race
from engines.report import encoding
from engines.report.answer import Answer
from engines.report.events import Auditing, Failed, Loading, Pricing, Ready
from engines.wire import Event
from spec_tui.session.advice_setup import advice
from spec_tui.session.engine_commands import (
    Audit,
    BuildDatastore,
    Cancel,
    Close,
    Command,
    DatastoreCommand,
    EstimateDatastore,
    ListDatastores,
    Load,
    LoadRequest,
    MeasurePrice,
    ProbeDatastore,
    RemoveDatastore,
    Run,
    StartAdvice,
    StartRace,
)
from spec_tui.session.host_access import HostAccess

if TYPE_CHECKING:
    from engines.datastores.building.build_spec import BuildSpec
    from engines.datastores.service import DatastoreService
    from engines.progress import BuildProgress


class Decoder(Racer, Protocol):
    """What is asked of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    ready: Ready
    datastore_service: DatastoreService


@runtime_checkable
class TakesDrafts(Protocol):
    """A loaded model that can be given another draft model."""

    def with_draft_model(self, name: str, progress: Callable[[Loading], None]) -> Decoder:
        """As ``engines.runtime.Runtime.with_draft_model``."""


Loader = Callable[..., Decoder]
"""Takes the fields of ``LoadRequest`` and ``progress`` by name, as ``engines.load`` does."""


class _JobStopped(BaseException):
    """Leaves a loader or a build by way of its progress report; not an Exception, so that neither takes it for its
    own."""


_AT_ONCE = ListDatastores | ProbeDatastore | RemoveDatastore
"""Commands that take so little time that there is nothing to stop."""
_EVERY = 0.1  # seconds between two events of progress in one stage


@dataclass(eq=False, slots=True)
class _Job:
    command: Command
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
        self._access = HostAccess.here()
        self._decoder: Decoder | None = None
        self._request = LoadRequest()  # that it was loaded by
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._pending: list[_Job] = []  # waiting or under way; guarded by the lock
        self._lock = threading.Lock()

    def command(self, command: Command) -> None:
        """Take a command from any thread; returns at once.

        ``Cancel`` stops the runs, races, audits and builds under way and waiting; without any, the loading (at its next
        progress report).
        """
        if isinstance(command, Cancel):
            self._stop(only_runs=True)
        elif isinstance(command, Close):
            self._stop(only_runs=False)
            self._queue.put(None)
        else:
            job = _Job(command)
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
            except _JobStopped:
                self._emit(Failed("loading was stopped", "what was downloaded stays", "cancelled"))
            except Exception as error:  # whatever a model's code raises must reach the screen as an event
                traceback.print_exc()
                self._emit(_unexpected(error))
            finally:
                with self._lock:
                    self._pending.remove(job)

    def _stop(self, only_runs: bool) -> None:
        with self._lock:
            runs = [job for job in self._pending if not isinstance(job.command, Load | _AT_ONCE)]
            for job in runs if runs and only_runs else self._pending:
                job.stop.set()

    def _check(self, command: Command) -> None:
        self._access.check(command, self._decoder.ready.host if self._decoder is not None else "")

    def _execute(self, job: _Job) -> None:
        if not isinstance(job.command, DatastoreCommand):
            self._check(job.command)
        match job.command:
            case Load(request):
                self._load(request, job.stop)
            case Run(request):
                for event in self._loaded().run(request, cancelled=job.stop.is_set, progress=self._emit):
                    self._emit(event)
            case StartRace(asked):
                with Peers(self._loaded()) as racer:
                    for event in defer_events(race(racer, asked, job.stop.is_set, self._emit)):
                        self._emit(event)
            case StartAdvice(suite, request, seconds):
                decoder, suite = self._loaded(), _suite(suite)
                for event in advice(decoder, suite, request, seconds, job.stop.is_set, self._emit):
                    self._emit(event)
            case Audit(answer):
                self._audit(answer, job.stop)
            case MeasurePrice():
                self._price(job.stop)
            case command:
                self._execute_on_datastores(command, job.stop.is_set)

    def _load(self, request: LoadRequest, stop: threading.Event) -> None:
        def progress(event: Loading) -> None:
            if stop.is_set():
                raise _JobStopped
            self._emit(event)

        before, self._decoder = self._decoder, None  # before the next one: two large models rarely fit side by side
        if isinstance(before, TakesDrafts) and _other_draft(self._request, request):
            decoder = before.with_draft_model(request.draft_model, progress)
        else:
            before = None
            gc.collect()
            decoder = self._load_models(**asdict(request), progress=progress)
        self._decoder, self._request = decoder, request
        self._emit(decoder.ready)

    def _audit(self, answer: Answer, stop: threading.Event) -> None:
        found = self._loaded().audit(answer, stop.is_set, lambda done: self._emit(Auditing(done)))
        self._emit(found or Failed("the audit was stopped", "start it again to see what it finds", "cancelled"))

    def _price(self, stop: threading.Event) -> None:
        found = self._loaded().measure_price(stop.is_set, lambda done: self._emit(Pricing(done)))
        self._emit(found or Failed("the measurement was stopped", "start it again to see t(n)", "cancelled"))

    def _execute_on_datastores(self, command: DatastoreCommand, stopped: Callable[[], bool]) -> None:
        """Every end of the command is an event. Failures are ``Refused``, never ``Failed``, which would be taken for
        those of a run."""
        do, name = command.__struct_config__.tag, ""
        try:
            self._check(command)
            datastores = self._loaded().datastore_service
            if isinstance(command, ListDatastores):
                self._emit(datastores.list_datastores())
            elif isinstance(command, EstimateDatastore | BuildDatastore):
                spec = _build_spec(command.spec)
                name, progress = spec.name, _ProgressEvents(spec.name, self._emit, stopped)
                if isinstance(command, EstimateDatastore):
                    self._emit(datastores.estimate(spec, progress))
                else:
                    self._emit(datastores.build(spec, progress, command.fresh))
                    self._emit(datastores.list_datastores())
            else:
                name = command.name
                found = datastores.remove(name) if isinstance(command, RemoveDatastore) else datastores.probe(
                    name, command.text, command.prompt)
                self._emit(found)
        except SpecError as error:
            self._emit(Refused(do, name, error.message, error.hint, error.kind))
        except _JobStopped:
            built = isinstance(command, BuildDatastore)
            what, hint = (name, "its progress is kept, and can be continued") if built else ("the estimate", "")
            self._emit(Refused(do, name, f"{what} was stopped", hint, "cancelled"))

    def _loaded(self) -> Decoder:
        if self._decoder is None:
            raise ModelUnavailable("no model is loaded", "load a model first")
        return self._decoder


class _ProgressEvents:
    """Emits some of the progress of a build, and leaves the build once it is stopped."""

    def __init__(self, name: str, emit: Callable[[Event], None], stopped: Callable[[], bool]) -> None:
        self._name, self._emit, self._stopped = name, emit, stopped
        self._stage, self._at = "", 0.0

    def __call__(self, step: BuildProgress) -> None:
        if self._stopped():
            raise _JobStopped
        if step.stage != self._stage or monotonic() - self._at >= _EVERY or step.done == step.total:
            self._stage, self._at = step.stage, monotonic()
            self._emit(Building(self._name, step))


def _other_draft(loaded: LoadRequest, wanted: LoadRequest) -> bool:
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


def _unexpected(error: Exception) -> Failed:
    name = type(error).__name__
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return Failed("out of memory", "try a smaller model, a shorter prompt or fewer tokens", "failed")
    hint = "this is a bug; the engine's log has the details"
    return Failed(f"the engine broke: {name}: {error}", hint, "bug")
