"""The conversation and the engine behind it, without a screen: what is sent when, what comes back, what is kept.

``pump`` folds the events that have arrived and says what happened; the screen only draws.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from engines import methods
from engines.datastores.datastore_events import DatastoreList
from engines.errors import SpecError
from engines.folders import model_label, same_model
from engines.hub.known_models import choose, known_name
from engines.machine import processors
from engines.race.result import Disturbance
from engines.race.system_load import LoadWatch
from engines.report.events import (
    Audited,
    Failed,
    Finished,
    Layers,
    Loading,
    Prefilled,
    Prefilling,
    PriceMeasured,
    Pricing,
    Ready,
    Started,
)
from engines.report.run_state import RunState, first_difference, fold
from engines.request import Request
from engines.wire import Event
from spec_tui.present.narration import question
from spec_tui.present.speed_caveats import Caveat, speed_caveats
from spec_tui.present.text import capital, one_line
from spec_tui.session.client import ENGINE, NO_ANSWER, NOT_RUNNING, EngineClient
from spec_tui.session.datastore_jobs import DatastoreJobs
from spec_tui.session.engine_commands import Audit, BuildDatastore, Load, LoadRequest, MeasurePrice, Run, StartRace
from spec_tui.session.history import Entry, History, is_baseline, numbered
from spec_tui.session.jobs import Jobs, SessionChange
from spec_tui.session.kept_settings import KeptSettings, head_left_out, keep_head, with_head
from spec_tui.session.replay_client import ReplayClient, request_of
from spec_tui.session.settings import ChatSettings

Phase = Literal["loading", "ready", "failed", "dead"]
Purpose = Literal["baseline", "layers", "every row", "branch"]
"""What a run beside the conversation is for: the rate to compare with, the layers' cosines, an answer recorded with
every row, another version from a round on."""
PURPOSES: dict[Purpose, str] = {
    "baseline": "the baseline", "layers": "the layers", "every row": "every row of the answer",
    "branch": "the branch",
}
_TO_END = 2.0  # seconds in which a race under way is to end when the application does
_ROUGH = 0.5  # seconds: systems count the time of cores in steps of some 10 ms
REFUSED = "This is a replay: no model is loaded."


@dataclass(slots=True, eq=False)
class Turn:
    """A prompt, the request it was sent with, and its run; what it is for, where it is not an answer."""

    prompt: str
    request: Request
    run: RunState
    purpose: Purpose | None = None
    disturbed: Disturbance | None = None  # what other programs took meanwhile

    @property
    def kept(self) -> bool:
        """Whether the next prompt builds on this turn: it ended, by itself or by esc, and said something."""
        return self.run.finished is not None and bool(self.run.text)

    @property
    def answer(self) -> str:
        """Its text, whole even where a trace lacks rounds of it."""
        return self.run.finished.text if self.run.finished and self.run.lacks_rounds else self.run.text

    @property
    def saved(self) -> bool:
        """Whether it is worth keeping on the disk: also what was written before the engine broke."""
        return not self.run.running and bool(self.run.text)


class ChatSession:
    """One engine, one conversation.

    Attributes:
        jobs: what the engine was asked and has not ended.
        phase: loading, ready, failed (the model could not be loaded), dead (the engine process is gone).
        turns: the conversation; the last one may be running.
        layers: what the last run that measured layers' cosines found, None before one.
        audited: number of the turn that was audited last.
        same_text: of an answer, by its number, against its baseline: None where both are the same, else the index of
            the first differing token, or of the end of the shorter one.
        problem: the last failure, to be shown.
        restored: a prompt given back because its run could not answer it.
        queued: a prompt sent while the models load.
        datastore_jobs: datastores being built, and what was asked of them.
        kept: what is kept for the loaded model, used or, with ``gone``, left out; None where nothing is.
        head_left_out: why the head that is kept for it is not loaded, as of ``kept_settings.head_left_out``.
        store: where conversations are kept, None for nowhere; ``entry`` is this one, once something was answered, and
            ``unsaved`` says why it could not be written; if it is ``forgotten``, it was deleted, and is not kept again.
    """

    def __init__(
        self, client: EngineClient | ReplayClient, load: LoadRequest, settings: ChatSettings,
        store: History | None = None,
    ) -> None:
        self.client, self.load_request, self.settings = client, load, settings
        self.jobs = Jobs(client, self._unasked)
        self.store, self.unsaved = store, ""
        self.kept: KeptSettings | None = None
        self.head_left_out = ""
        self.entry: Entry | None = None
        self.forgotten = False
        self.phase: Phase = "loading"
        self.ready: Ready | None = None
        self.turns: list[Turn] = []
        self.layers: Layers | None = None
        self.audited: int | None = None
        recorded = client.baselines if client.capabilities.clock else ()
        self.baselines: dict[tuple, RunState] = {run.baseline_key: run for run in recorded}
        self.same_text: dict[int, int | None] = {}
        self._replaced: tuple[Turn, dict[int, int | None]] | None = None  # what is asked again, and ``same_text``
        self.problem: Failed | None = None
        self.restored = ""
        self.queued: str | None = None
        self.datastore_jobs = DatastoreJobs(self.jobs, self._listed)
        self._before: LoadRequest | None = None  # what was loaded before the load under way
        self._failed_load: LoadRequest | None = None  # the last one that failed
        self._fetched = False  # something was downloaded by the load under way
        self._load: LoadWatch | None = None  # during the run under way

    # -- what a person does -----------------------------------------------------------------------
    def start(self) -> None:
        """Load the models."""
        self.phase, self.problem, self._fetched = "loading", None, False
        self.jobs.submit(Load(self.load_request), self._on_load_event)

    @property
    def busy(self) -> bool:
        """The engine is at work (on an answer, a baseline, an audit, a race, a datastore)."""
        return self.jobs.at_work is not None

    @property
    def stuck(self) -> bool:
        """Whether the engine does not stop what it was asked to: only another one helps."""
        job = self.jobs.at_work
        return job is not None and job.stuck

    @property
    def restartable(self) -> bool:
        """Whether the engine is to be started again before it answers anything."""
        return self.phase in ("dead", "failed") or self.stuck

    @property
    def downloading(self) -> bool:
        """A model is on its way, or asked for: esc stops that, where there is no prompt to take back."""
        job = self.jobs.loading
        return job is not None and job.progress is not None and (
            job.progress.bytes is not None or self.load_request.fetch)

    @property
    def stoppable(self) -> bool:
        """Whether esc has something to stop or to take back; what was recorded cannot be stopped."""
        return self.client.capabilities.ask and (self.busy or self.queued is not None or self.phase == "loading")

    @property
    def takes_all_cores(self) -> bool:
        """Whether the model computes at the moment, on every processor that there is."""
        ready = self.ready
        return self.busy and ready is not None and ready.device == "cpu" and (ready.threads or 0) >= processors()

    @property
    def answering(self) -> bool:
        """Whether an answer is being written."""
        job = self.jobs.at_work
        return job is not None and isinstance(job.command, Run) and job.about.purpose is None

    @property
    def measuring(self) -> Turn | None:
        """A run beside the conversation (the baseline, the layers, a branch) while it lasts."""
        job = self.jobs.at_work
        return job.about if job is not None and isinstance(job.command, Run) and job.about.purpose else None

    @property
    def models(self) -> list[str]:
        """The models that answered in this conversation, the first one first."""
        started = (turn.run.started for turn in self.turns)
        return list(dict.fromkeys(model_label(start.model) for start in started if start is not None))

    @property
    def several_models(self) -> bool:
        """Whether the models that answered here, and the one that is loaded, are more than one."""
        loaded = () if self.ready is None else (model_label(self.ready.model),)
        return len({*self.models, *loaded}) > 1

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    def send(self, prompt: str) -> str:
        """Ask this. Returns "" if it was taken, else why not, in words; then the prompt is still the caller's."""
        if not self.client.capabilities.ask:
            return REFUSED
        if not prompt.strip():
            return "Type a prompt first."
        if self.phase == "loading":
            if self.queued is not None:
                return "A prompt is already waiting for the model. Your text is kept."
            self.queued = prompt
            return ""
        if refused := self.blocked_reason:
            return f"{refused} Your text is kept."
        try:
            request = self.settings.request((*self.history(), ("user", prompt)), self.ready)
            request.check()
        except SpecError as error:
            self.problem = Failed(error.message, error.hint, error.kind)
            return f"{error.message}. {error.hint}"
        self.problem = self._replaced = None
        self.turns.append(Turn(prompt, request, RunState()))
        self._run(self.turns[-1], "answering")
        return ""

    def again(self) -> str:
        """Ask the last prompt again with the present settings (and the same seed)."""
        if refused := self.blocked_reason if self.turns else "There is no prompt to ask again.":
            return refused
        turn, same = self.turns.pop(), self.same_text.copy()
        self.same_text.pop(len(self.turns), None)
        refused = self.send(turn.prompt)
        if refused:
            self.turns.append(turn)
            self.same_text = same
        else:
            self._replaced = turn, same
        return refused

    def measure_baseline(self) -> str:
        """Run the last prompt autoregressively, beside the conversation. Returns "" or why not."""
        if refused := self.blocked_reason:
            return refused
        if self.last is None or not self.last.kept:
            return "Type a prompt first: the baseline repeats the last prompt."
        if refused := self.foreign(self.last.run):
            return refused
        engine = methods.baseline().id
        request = replace(self.last.request, engine=engine, options={}, datastores=(), continued=(), detail=False)
        self.measure(self.last.prompt, request, "baseline")
        return ""

    def foreign(self, run: RunState) -> str:
        """Why an answer cannot be made again here: another model wrote it; "" where it can."""
        wrote, ready = run.started, self.ready
        if wrote is None or ready is None or (same_model(wrote.model, ready.model) and wrote.dtype == ready.dtype):
            return ""
        return f"{model_label(wrote.model)} ({wrote.dtype}) wrote this answer: load that model to run it again."

    def measure(self, prompt: str, request: Request, purpose: Purpose) -> None:
        """Run this beside the conversation, without past answers: they hold the one that it is compared with. The
        engine must be free."""
        self._run(Turn(prompt, replace(request, keeps=False), RunState(), purpose), f"measuring {PURPOSES[purpose]}")

    @property
    def measures(self) -> Purpose | None:
        return self.measuring.purpose if self.measuring is not None else None

    def audit(self, number: int | None = None) -> str:
        """Check the answer of a turn, the last one by default, against the target. Returns "" or why not."""
        if refused := self.blocked_reason:
            return refused
        number = len(self.turns) - 1 if number is None else number
        answer = self.turns[number].run.answer if self.turns else None
        if answer is None:
            return "Type a prompt first: an audit checks an answer."
        turn = self.turns[number]
        if turn.run.lacks_rounds:
            return "Rounds of this answer are missing, so it cannot be audited."
        self.jobs.submit(Audit(answer), partial(self._on_audit_event, turn), "auditing", turn)
        return ""

    def measure_price(self) -> str:
        """Measure t(n) of a served model. Returns "" or why not."""
        if refused := self.blocked_reason:
            return refused
        self.jobs.submit(MeasurePrice(), self._on_price_event, "measuring t(n)")
        return ""

    @property
    def still(self) -> str:
        """Why nothing new can begin, while the engine is at work."""
        if self.stuck:
            return f"{capital(NO_ANSWER.message)}: in the chat ctrl+r restarts it."
        job = self.jobs.at_work
        kept = ", and its progress is kept" * isinstance(job.command, BuildDatastore)
        return f"Still {job.doing}: esc stops it{kept}."

    @property
    def blocked_reason(self) -> str:
        """Why nothing can begin now, in words; "" where it can."""
        if self.busy:
            return self.still
        if self.phase == "loading":
            return "The model is still loading: try again when it is there."
        return {"ready": "", "failed": f"No model is loaded: in the chat {self.way_out}."}.get(
            self.phase, "The engine is not running: in the chat ctrl+r restarts it.")

    @property
    def way_out(self) -> str:
        """What to do where no model is loaded."""
        earlier = self._failed_load is not None and self._failed_load != self.load_request
        return "ctrl+r " + ("loads the earlier model again" if earlier else "tries again")

    def cancel(self) -> bool:
        """Stop what runs or waits; False if nothing did."""
        if self.queued is not None:
            self._give_back_queue()
            return True
        job = self.jobs.at_work or self.jobs.loading
        if job is not None:
            self.jobs.stop(job)
        return job is not None

    def restart(self) -> None:
        """Load the models, in a fresh engine where this one is dead or stuck; the conversation stays."""
        if self.stuck:
            self.jobs.fail(NO_ANSWER)
            self.client.restart()
        elif not self.client.alive:
            self.client.restart()
        self.start()

    def change_models(self, load: LoadRequest) -> None:
        """Load other models; the engine must be free. The conversation stays, and is told to the new target from its
        beginning."""
        if load.model != self.load_request.model:
            self.kept = None
        self._before, self.load_request = self.load_request, with_head(load)
        self.head_left_out = head_left_out(self.load_request)
        self.ready = self.layers = None
        self.restart()

    def new(self) -> str:
        """An empty conversation."""
        if self.busy:
            return self.still
        self.turns.clear()
        self.same_text.clear()
        self.problem, self.entry, self.forgotten = None, None, False
        return ""

    def resume(self, entry: Entry) -> str:
        """Go on with a conversation that was kept. Returns "" or why not; then this one stays."""
        if self.busy:
            return self.still
        try:
            runs = {name: run for name, run in entry.runs().items() if run.started is not None}
        except SpecError as error:
            return f"{error.message}: {error.hint}"
        self.new()
        self.entry = entry
        for name, run in runs.items():
            if not is_baseline(name):
                self.turns.append(Turn(question(run.started), request_of(run.started), run))
            elif self.turns and run.metrics.tokens_per_second:
                self.baselines[run.baseline_key] = run
                self.same_text[len(self.turns) - 1] = first_difference(self.turns[-1].run, run)
        return ""

    def forget(self, entry: Entry) -> str:
        """Delete what was kept; where it is this conversation, it stays on the screen and is kept no more, which is
        returned in words. Raises UsageProblem where the disk refuses."""
        entry.delete()
        if self.entry is None or self.entry.folder != entry.folder:
            return ""
        self.entry, self.forgotten = None, True
        return "It stays on the screen, but is no longer saved: /new starts one that is."

    def _keep(self) -> None:
        runs = numbered((turn.run for turn in self.turns if turn.saved), self.baseline)
        if self.store is None or self.forgotten or not runs or not self.client.capabilities.ask:
            return
        try:
            if self.entry is None:
                self.entry = self.store.begin("conversations", one_line(self.turns[0].prompt, 60))
            self.entry.about = one_line(", ".join(self.models), 80)
            self.entry.keep(runs)
            self.unsaved = ""
        except SpecError as error:
            self.unsaved = f"{error.message}; {error.hint}"

    def leave(self) -> None:
        """The application ends: keep the answer or race under way as if esc had stopped it."""
        job = self.jobs.at_work
        if job is not None and isinstance(job.command, StartRace) and not job.command.race.live:
            self.jobs.end(job, _TO_END)
        turn = self.last
        if turn is not None and turn.run.running and turn.run.text:
            ids = tuple(token.emitted.token for token in turn.run.tokens)
            turn.run = fold(turn.run, Finished("cancelled", ids, turn.run.text))
            self._keep()

    def rewind(self) -> None:
        """Play a recording from its beginning."""
        self.turns.clear()
        self.same_text.clear()
        self.client.play()

    def take_restored(self) -> str:
        """The prompt to put back into the box, once."""
        text, self.restored = self.restored, ""
        return text

    def caveats(self, run: RunState) -> list[Caveat]:
        """Why the speed of a run says little."""
        return speed_caveats(run, next((turn.disturbed for turn in self.turns if turn.run is run), None))

    def baseline(self, run: RunState) -> RunState | None:
        """The autoregressive run that a run may be compared with."""
        return self.baselines.get(run.baseline_key)

    # -- what the engine says -----------------------------------------------------------------------
    def pump(self) -> set[SessionChange]:
        """Fold what has arrived; what happened since the last call."""
        happened = self.jobs.dispatch()
        if not self.client.alive and self.phase != "dead":
            happened |= self._died()
        if happened & {"finished", "audited", "baseline", "broke", "dead"}:
            self._keep()
        return happened

    def _run(self, turn: Turn, doing: str) -> None:
        self._load = LoadWatch() if self.client.pid is not None else None
        self.jobs.submit(Run(turn.request), partial(self._on_run_event, turn), doing, turn)

    def history(self) -> tuple[tuple[str, str], ...]:
        """The turns that the next prompt builds on, as (role, text)."""
        return tuple(pair for turn in self.turns if turn.kept
                     for pair in (("user", turn.prompt), ("assistant", turn.answer)))

    def _unasked(self, number: int, event: Event) -> set[SessionChange | None]:
        """The engine failed; or a recording tells what was asked, what came, and what an audit found."""
        if number == ENGINE:
            self.problem = event
            self.jobs.fail(event)
            return {"failed"}
        if isinstance(event, Started):
            self.turns.append(Turn(question(event), request_of(event), RunState()))
        if not self.turns:
            return set()
        turn = self.turns[-1]
        return {self._on_audit_event(turn, event) if isinstance(event, Audited) else self._on_run_event(turn, event)}

    def _on_load_event(self, event: Loading | Ready | Failed) -> SessionChange:
        if isinstance(event, Ready):
            return self._became_ready(event)
        if isinstance(event, Loading):
            self._fetched = self._fetched or event.bytes is not None
            return "progress"
        stopped = event.kind == "cancelled" and not self._fetched
        self.phase, self.problem = "failed", replace(event, hint="") if stopped else event
        self._failed_load = self.load_request
        if self._before is not None:
            self.load_request, self._before = self._before, None
        self._give_back_queue()
        return "failed"

    def _on_run_event(self, turn: Turn, event: Event) -> SessionChange:
        if isinstance(event, Prefilling | Loading):
            return "progress"
        turn.run = fold(turn.run, event)
        if isinstance(event, Started) and self.ready is not None and self.ready.served:
            self.ready = replace(self.ready, model=event.model)  # another one may be served there now
        if isinstance(event, Prefilled) and event.layers is not None and event.layers.attention_cosine:
            self.layers = event.layers
        if isinstance(event, Finished):
            return self._ended(turn)
        if isinstance(event, Failed):
            return self._broke(turn, event)
        return "began" if isinstance(event, Started) else "text"

    def _on_audit_event(self, turn: Turn, event: Event) -> SessionChange:
        if isinstance(event, Audited):
            turn.run, self.audited = fold(turn.run, event), self.turns.index(turn)
            return "audited"
        if not isinstance(event, Failed):
            return "progress"
        if event.kind != "cancelled":
            self.problem = event
        return "unaudited"

    def _on_price_event(self, event: Pricing | PriceMeasured | Failed) -> SessionChange:
        if isinstance(event, PriceMeasured) and self.ready is not None:
            self.ready = replace(self.ready, price=event.price)
        elif isinstance(event, Failed) and event.kind != "cancelled":
            self.problem = event
        return "progress" if isinstance(event, Pricing) else "priced"

    def _listed(self, event: DatastoreList) -> None:
        if self.ready is not None:
            self.ready = replace(self.ready, datastores=event.datastores)
            self._drop_unfit_datastores()

    def _drop_unfit_datastores(self) -> None:
        """Drop chosen datastores that are gone, or that do not fit the model."""
        fitting = {info.name for info in self.ready.datastores}
        left = tuple(name for name in self.settings.datastores if name in fitting)
        self.settings = replace(self.settings, datastores=left)

    def _drop_foreign_engine(self) -> None:
        """Drop a chosen engine of another program than the one that runs the model, and say so."""
        chosen = self.settings.engine
        if not chosen or methods.find(chosen).host == self.ready.host:
            return
        self.settings = replace(self.settings, engine="")
        now = methods.find(self.settings.resolved(self.ready)).title
        said = f"{methods.find(chosen).title} does not run where this model does: the next answers use {now}"
        self.ready = replace(self.ready, warnings=(*self.ready.warnings, said))

    def _became_ready(self, event: Ready) -> SessionChange:
        keep_head(self.load_request)
        self.phase, self.ready, self.problem = "ready", event, None
        self._drop_foreign_engine()
        if self._before is not None:
            self._before = None
            choose(known_name(self.load_request.model or ""))  # it also answers the next time
            self._drop_unfit_datastores()
        self.settings = replace(self.settings, model=event.model)
        if self.queued is not None:
            prompt, self.queued = self.queued, None
            if self.send(prompt):
                self.restored = prompt
        return "ready"

    def _ended(self, turn: Turn) -> SessionChange:
        turn.disturbed = self._disturbance()
        run, rate = turn.run, turn.run.metrics.tokens_per_second
        # a few tokens of a stopped run are no rate to compare with, nor is a run for something else
        whole = run.finished.reason != "cancelled" and turn.purpose in (None, "baseline")
        if methods.drafts_nothing(turn.request.engine) and rate and run.baseline_key and whole:
            self.baselines[run.baseline_key] = run
        if turn.purpose is not None:
            return self._measured(turn)
        if (recorded := self.baseline(run)) is not None and self.client.capabilities.clock and recorded is not run:
            self.same_text[len(self.turns) - 1] = first_difference(run, recorded)
        if not run.text and run.finished.reason == "cancelled" and self.client.capabilities.ask:
            self._give_back(turn)
        return "finished"

    def _measured(self, turn: Turn) -> SessionChange:
        """A run beside the conversation has ended."""
        run = turn.run
        if turn.purpose == "layers":
            return "layers" if run.prefilled is not None else "unmeasured"
        if turn.purpose != "baseline":
            return "text"
        if run.finished.reason == "cancelled":
            return "unmeasured"
        if self.last is not None:
            self.same_text[len(self.turns) - 1] = first_difference(self.last.run, run)
        return "baseline"

    def _disturbance(self) -> Disturbance | None:
        """What other programs took meanwhile; of a server on this machine nothing is known, as it is one itself."""
        if self._load is None or (self.ready is not None and self.ready.served):
            return None
        seconds, others, _ = self._load.stop()
        return None if others is None or seconds < _ROUGH else Disturbance(others / seconds, None, os.cpu_count() or 1)

    def _broke(self, turn: Turn, event: Failed) -> SessionChange:
        if not self.client.capabilities.ask:
            return "broke"  # the turn says why
        self.problem = event
        if turn.purpose is None:
            self._give_back(turn)
        return "unmeasured" if turn.purpose in ("layers", "baseline") else "broke"

    def _died(self) -> set[SessionChange]:
        if self.problem is None:  # it did not say why
            self.problem = NOT_RUNNING
        self.jobs.fail(self.problem)
        self.phase = "dead"
        return {"dead"} | self.jobs.dispatch()

    def _give_back(self, turn: Turn) -> None:
        """The prompt goes back into the box; a turn that said nothing is no turn. One that was asked again is as it
        was."""
        silent = not turn.run.text and turn is self.last
        if silent:
            self.turns.pop()
        if silent and self._replaced is not None:
            before, self.same_text = self._replaced
            self.turns.append(before)
            self._replaced = None
        else:
            self.restored = turn.prompt

    def _give_back_queue(self) -> None:
        if self.queued is not None:
            self.restored, self.queued = self.queued, None
