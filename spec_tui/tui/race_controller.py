"""A race on a screen, without the screen: what is chosen, what runs, which moment of it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines import methods
from engines.errors import SpecError, UsageProblem
from engines.folders import model_label, same_model
from engines.race.forecast import LETTERS, expected_seconds, has_llama_cpp
from engines.race.lanes import Lane, Race, labels
from engines.race.race_events import Compared, LaneStarted, RaceFinished
from engines.race.result import LaneRun
from engines.report.events import Ready
from engines.report.run_state import RunState
from engines.wire import Event
from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.present.on_screen import failure, on_screen
from spec_tui.present.progress_text import race_left
from spec_tui.present.text import one_line
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.engine_commands import StartRace
from spec_tui.session.history import Entry, RaceRecord
from spec_tui.session.host_access import HostAccess
from spec_tui.session.jobs import Job
from spec_tui.session.race_state import Point, RaceReplay, RaceState, timeline
from spec_tui.session.recorded_race import kept_race, trace_name
from spec_tui.session.settings import ChatSettings, unavailable

if TYPE_CHECKING:
    from engines.reproduce.entry import PaperEntry

FEWEST, MOST = 2, 6
LLAMA_CPP = "llama.cpp"
REPEATS = (1, 3, 6, 12)
_SHORTER = (128, 96, 64, 48, 32)  # new tokens of an answer
_ENDURED = 90.0  # seconds that a race takes at most, unless more was asked for


@dataclass(frozen=True, slots=True)
class RaceSetup:
    """A race to be; ``live`` shows lanes while they run, and its numbers are not comparable. ``most`` is how many new
    tokens an answer has; None takes as many as the chat's."""

    lanes: tuple[Lane, ...] = ()
    prompt: str = ""
    repeats: int = 3
    live: bool = False
    most: int | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        return labels(self.lanes)

    def race(self, settings: ChatSettings, ready: Ready | None) -> Race:
        """The race, sampled as these settings say. Raises UsageProblem for what cannot be run."""
        _check_count(self.lanes)
        if not self.prompt.strip():
            raise UsageProblem("there is no prompt", "i goes to the prompt, ctrl+o has examples")
        for lane, label in zip(self.lanes, self.labels):
            if reason := missing(lane, ready, settings):
                raise UsageProblem(f"{label} cannot run: {reason}", "- removes the lane")
        request = settings.request((("user", self.prompt),), ready)
        asked = Race(self.lanes, replace(request, engine="", options={}, max_new_tokens=self.new_tokens(settings)),
                     repeats=self.repeats, live=self.live)
        asked.check()
        return asked

    def new_tokens(self, settings: ChatSettings) -> int:
        """The most new tokens of an answer."""
        return settings.max_new_tokens if self.most is None else self.most

    def seconds(self, settings: ChatSettings, ready: Ready | None) -> float | None:
        """How long it takes at most; None where that is not known."""
        return expected_seconds(len(self.lanes) * self.repeats, len(self.lanes), len(self.prompt) // LETTERS,
                       self.new_tokens(settings), ready)

    def short(self, settings: ChatSettings, ready: Ready | None) -> RaceSetup:
        """The same with answers so short, if need be one of each lane, that it ends within a minute or two."""
        tried = [self, *(replace(self, most=most, repeats=repeats) for repeats in (self.repeats, 1) for most in _SHORTER
                         if most < settings.max_new_tokens)]
        fit = (each for each in tried if (each.seconds(settings, ready) or 0.0) <= _ENDURED)
        return next(fit, tried[-1])


def _check_count(lanes: Sequence[Lane]) -> None:
    """Raises UsageProblem."""
    if not FEWEST <= len(lanes) <= MOST:
        raise UsageProblem(f"a race has {FEWEST} to {MOST} lanes, not {len(lanes)}",
                           "+ adds one, - removes one, /lanes autoregressive,pld sets them all")


def _common(settings: ChatSettings) -> ChatSettings:
    """What all lanes of a race are asked with, of the chat's settings."""
    return replace(settings, engine="", given={}, model="")


def usual_lanes(settings: ChatSettings, ready: Ready | None) -> tuple[Lane, ...]:
    """Lanes to begin with: the usual engines that can run, and the chat's own where it is another one."""
    usual = sorted((spec for spec in methods.specs() if spec.race_place is not None), key=lambda s: s.race_place)
    chosen = [lane for lane in (Lane(spec.id) for spec in usual) if not missing(lane, ready, settings)]
    engine = settings.resolved(ready)
    own = Lane(engine, dict(settings.given.get(engine, {})))
    if not missing(own, ready, settings) and all(own.label != lane.label for lane in chosen):
        chosen.append(own)
    if HostAccess.here().whole and has_llama_cpp(ready):
        chosen.append(Lane(LLAMA_CPP))
    return tuple(chosen)


def missing(lane: Lane, ready: Ready | None, settings: ChatSettings) -> str:
    """Why a lane cannot run with the loaded models and the datastores that it searches; "" where it can."""
    spec = methods.find(lane.engine)
    if spec.host and (ready is None or not ready.served):  # it is asked when the race begins
        return ""
    stores = lane.datastores or settings.datastores
    return on_screen(unavailable(spec, ready, spec.parse(lane.options), stores, lane.draft_model))


def not_raced(entry: PaperEntry, session: ChatSession) -> str:
    """Why the rows of a paper's table cannot be raced here; "" where they can."""
    if entry.cannot:
        return f"cannot be run here: {entry.cannot}"
    return "" if len(_rows_here(entry, session)) >= FEWEST else "cannot be raced: too few of its rows can run here"


def _rows_here(entry: PaperEntry, session: ChatSession) -> list[Lane]:
    from engines.reproduce.entry import plain_lanes

    return [lane for lane in plain_lanes(entry) if not missing(lane, session.ready, session.settings)]


class RaceController:
    """Races one after another over a session's engine, or a recorded one.

    Args:
        session: that of the chat.
        recorded: a race that is over, to begin with.
        speed: of its replay; infinity begins at its end; None lets it be watched.

    Attributes:
        setup: the race to be.
        race: the race that runs or ran last, None before one.
        replay: its runs on one clock, None while it runs.
        left: how long the race that runs may still take, in words.
        differing: the pair whose first differing token is shown, else None.
        job: that of the race that ran last here, None before one.
        unsaved: why the last race is not among the former ones, "" where it is.
        changes: grows with everything that the engine says of a race.
    """

    def __init__(self, session: ChatSession, recorded: RaceState | None = None, speed: float | None = None) -> None:
        self.session, self.race = session, recorded
        self.replay: RaceReplay | None = None
        self.differing: Compared | None = None
        self.job: Job | None = None
        self.changes = 0
        self.unsaved = self.left = ""
        self._kept: tuple[ChatSettings, ChatSettings] | None = None  # of a kept race, and the chat's beside it
        self._began = 0.0
        self._ready = session.ready
        self._usual = usual_lanes(session.settings, session.ready)
        if recorded is None:
            code = next(item.prompt for item in SHOWCASES if item.kind == "code")
            setup = RaceSetup(self._usual, session.last.prompt if session.last is not None else code)
            self.setup = setup.short(session.settings, session.ready)
            return
        self.setup = RaceSetup(recorded.asked.lanes, repeats=1)
        self._start_replay(None if speed == math.inf else speed)
        if speed == math.inf:
            self.replay.clock.skip()

    def resume(self) -> None:
        """The screen opens, perhaps again: the race that was left is still there, if its model is still loaded."""
        self.follow_model()
        if self.can_race and self.race is not None and not self.race.origin:
            runs, ready = self.race.result.complete, self.session.ready
            if not runs or ready is None or not same_model(runs[0].state.started.model, ready.model):
                self.race = self.replay = self.differing = None
        if self.race is None and self.can_race and self.session.last is not None:
            self.setup = replace(self.setup, prompt=self.session.last.prompt)

    @property
    def can_race(self) -> bool:
        """Whether there is an engine to race with; a recorded race is only looked at."""
        return self.session.client.capabilities.race

    @property
    def running(self) -> bool:
        return self.race is not None and self.race.running

    @property
    def finished(self) -> bool:
        """Whether there is a result to look at."""
        return self.race is not None and not self.race.running and bool(self.race.result.complete)

    @property
    def idle(self) -> bool:
        return self.can_race and not self.running

    @property
    def settings(self) -> ChatSettings:
        """What the race to be is asked with: as a kept race that was shown, until the chat's settings change; else as
        the chat."""
        kept, beside = self._kept or (None, None)
        return kept if beside == _common(self.session.settings) else self.session.settings

    @property
    def seconds(self) -> float | None:
        """How long the race to be takes at most; None where that is not known."""
        return self.setup.seconds(self.settings, self.session.ready)

    @property
    def before(self) -> bool:
        """Whether one could, and there is no result yet."""
        return self.idle and not self.finished

    @property
    def again(self) -> bool:
        """Whether one could after the one whose result is shown."""
        return self.idle and self.finished

    # -- what a person does -----------------------------------------------------------------------
    def start(self) -> str:
        """Race. Returns "" or why not, in words."""
        session = self.session
        if self.running:
            return "The race is still running: esc stops it."
        if session.blocked_reason:
            return session.blocked_reason
        try:
            asked = self.setup.race(self.settings, session.ready)
        except SpecError as error:
            return failure(error)
        self.race, self.replay, self.differing = RaceState(asked), None, None
        self._began, self.left = perf_counter(), ""
        self.job = session.jobs.submit(StartRace(asked), partial(self._take_event, self.race), "racing")
        return ""

    def change(self, **changes: Any) -> None:
        """Another race to be (fields of ``RaceSetup``); the result of one with other lanes goes. Raises UsageProblem
        for too few or too many lanes."""
        setup = replace(self.setup, **changes)
        if setup.lanes != self.setup.lanes:
            _check_count(setup.lanes)
            if not self.running:
                self.race = self.replay = self.differing = None
        self.setup = setup

    def take_paper(self, name: str) -> str:
        """Take the rows of a paper's table as lanes, those that can run here, and its first question. Returns what is
        to be said of it."""
        from engines.reproduce.entry import shipped
        from engines.reproduce.questions import asked_of

        entry = shipped()[name]
        whole = "" if entry.cannot else f"; spec-tui reproduce {name} runs the whole table, with its datastores"
        if why := not_raced(entry, self.session):
            return f"{name} {why}{whole}"
        lanes = _rows_here(entry, self.session)
        question = asked_of(entry.asked_in(entry.settings[0])).cases[0].turns[0]
        self.change(lanes=tuple(lanes[:MOST]), prompt=question)
        self._kept = None
        some = f"{MOST} of {len(lanes)} rows" if len(lanes) > MOST else "its rows"
        return f"{name}: {some}, with the chosen datastores{whole}"

    def keep(self) -> str:
        """Save the race among the former ones, with every complete run. Returns "" or why it could not be saved. Live
        races are not kept: their numbers say nothing."""
        race, store = self.race, self.session.store
        if store is None or race.asked.live or not race.result.complete:
            return ""
        runs = {Path(trace_name(race.asked.lanes[run.lane], run)).stem: run.state for run in race.result.complete}
        model = model_label(race.result.complete[0].state.started.model)
        ends = tuple(run.measured for run in race.result.runs.values() if run.measured is not None)
        record = RaceRecord(race.asked, ends, race.result.finished or RaceFinished("cancelled"))
        try:
            store.begin("races", one_line(self.setup.prompt, 60), f"{', '.join(race.labels)} on {model}", runs, record)
        except SpecError as error:
            return failure(error)
        return ""

    def show_kept(self, entry: Entry, when: str) -> str:
        """Show a race that was kept. Returns "" or why it cannot be shown."""
        try:
            race = kept_race(entry.runs(), when, entry.race())
        except SpecError as error:
            return failure(error)
        request = race.asked.request
        prompt = request.conversation[-1][1] if request.conversation else ""
        self.race, self.differing = race, None
        self.setup = RaceSetup(race.asked.lanes, prompt, race.asked.repeats, most=request.max_new_tokens)
        self._kept = ChatSettings.from_request(request), _common(self.session.settings)
        self._start_replay()
        self.replay.clock.skip()
        return ""

    def cancel(self) -> None:
        """Stop after the round under way; what is complete stays."""
        if self.running:
            self.session.jobs.stop(self.job)

    def restart(self) -> None:
        """A fresh engine; a race that the old one did not stop goes no further."""
        self.session.restart()
        if self.race is not None and self.race.problem is not None:
            self.race.problem = replace(self.race.problem, hint="")  # it is done

    def next_difference(self) -> Compared | None:
        """Show the next pair that differs, at the first token that does; after the last none."""
        pairs = [pair for pair in self.race.result.pairs if pair.at is not None] if self.finished else []
        at = pairs.index(self.differing) + 1 if self.differing in pairs else 0
        self.show_difference(pairs[at] if at < len(pairs) else None)
        return self.differing

    def show_difference(self, pair: Compared | None) -> None:
        """Show the runs in which these lanes differ; None: each lane's own again."""
        self.differing = pair
        self._start_replay(self.replay.clock.speed if self.replay is not None else None)
        if self.replay is not None:
            self.replay.clock.skip()

    # -- what the engine says ---------------------------------------------------------------------
    def follow_model(self) -> None:
        """Other lanes where a model has been loaded since they were chosen, unless a person chose them."""
        if self.can_race and self.session.ready is not self._ready:
            self._ready, before = self.session.ready, self._usual
            self._usual = usual_lanes(self.session.settings, self._ready)
            if self.setup.lanes == before:
                self.setup = replace(self.setup, lanes=self._usual)

    def _take_event(self, race: RaceState, event: Event) -> None:
        race.add(event)
        self.changes += 1
        if isinstance(event, LaneStarted):
            passed = perf_counter() - self._began
            self.left = race_left(passed, event.step - 1, event.steps, len(race.labels))
        if not race.running:
            self.unsaved = self.keep()
            self._start_replay()
            if race.asked.live and self.replay is not None:
                self.replay.clock.skip()  # it was seen already

    def _start_replay(self, speed: float | None = None) -> None:
        """Put the runs that are shown on one clock."""
        runs = {lane: self.run(lane) for lane in range(len(self.race.labels))} if self.race else {}
        runs = {lane: run.state for lane, run in runs.items() if run is not None}
        self.replay = RaceReplay(runs, speed) if runs else None

    # -- what is shown ----------------------------------------------------------------------------
    def run(self, lane: int) -> LaneRun | None:
        """The run that stands for a lane: in a difference the one that differs."""
        pair = self.differing
        if pair is not None and lane in (pair.first, pair.second):
            return self.race.run(lane, pair.second_repeat if lane == pair.second else pair.first_repeat)
        return self.race.shown(lane)

    def shown(self, lane: int) -> RunState | None:
        """A lane's run as far as it is shown now; None where there is nothing of it."""
        if self.replay is not None:
            return self.replay.at(lane) if lane in self.replay.runs else None
        run = self.race.shown(lane) if self.race is not None and self.race.asked.live else None
        return run.state if run is not None else None

    def series(self) -> list[tuple[str, list[Point]]]:
        """A mark and the points of each lane up to this moment."""
        lanes = range(len(self.race.labels)) if self.race is not None else ()
        if self.replay is not None:
            return [(str(n + 1), self.replay.points(n)) for n in lanes]
        return [(str(n + 1), timeline(run) if (run := self.shown(n)) is not None else []) for n in lanes]
