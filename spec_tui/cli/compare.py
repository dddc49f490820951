"""``spec-tui compare``: engines side by side on the same prompts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated

from typer import Option

from engines import methods
from engines.errors import UsageProblem
from engines.hub.download_progress import in_time
from engines.race.forecast import LETTERS, expected_seconds
from engines.race.interval import ENOUGH
from engines.race.lanes import Lane, Race, make_lane, parse_lane, parse_lanes
from engines.race.peers import Peers, addresses
from engines.race.race_events import LaneFinished, LaneStarted
from engines.race.result import RaceResult
from engines.race.runner import Racer, race
from engines.report.events import Auditing, Loading, Preparing, Ready
from engines.report.wording import counted
from engines.wire import Event
from spec_tui.cli.failures import FAILED, INTERRUPTED, LEFT_OUT, Interrupt, do_all, narrate, tell_failure
from spec_tui.cli.option_groups import EngineSettings, GenerationOptions, ModelOptions, PromptOptions, engine_settings
from spec_tui.cli.prompts import confirmed, read_prompts
from spec_tui.cli.run import load_decoder, tell_address
from spec_tui.cli.status_line import Status
from spec_tui.export.race_report import TraceFolder, report
from spec_tui.export.report import WRITERS
from spec_tui.present.progress_text import preparing_share, preparing_words, race_left
from spec_tui.present.text import one_line
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.settings import unavailable

_CANNOT = ("usage", "model", "library", "datastore")  # kinds of failures of a lane that cannot run here
_SAID_FROM = 20.0  # seconds: a shorter race needs no forecast
_MANY = 200  # runs that somebody at a terminal is asked about
REPEATS = ENOUGH

_ENGINES = ("Engines to compare, with their options: autoregressive,pld,rest:c=16:n_max=8. draft:model=DIR drafts with "
            "that model.")
_LANE = "One engine with option values that contain commas: rest:datastore=notes,python-stdlib. Repeatable."
_REPEATS = f"Number of times each engine answers. Default: {REPEATS}; fewer have wider intervals; 1 with --prompts."
_PROMPTS = ("File of prompts: one per line, lines of JSON with prompt or turns (as in Spec-Bench), or a chat log; - is "
            "stdin.")
_TRACES = "Folder to write a trace of every run to."
_FORMAT = "table or md (Markdown): a summary; json or csv: every run."


class RaceFormat(StrEnum):
    """How a race is written."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


SingleLanes = Annotated[list[str] | None, Option(metavar="ID:OPTION=VALUE", help=_LANE)]
Repeats = Annotated[int | None, Option(metavar="N", help=_REPEATS)]
Prompts = Annotated[Path | None, Option(metavar="FILE", help=_PROMPTS)]
TraceDir = Annotated[Path | None, Option(metavar="DIR", help=_TRACES)]
RaceFormat = Annotated[RaceFormat, Option("--format", help=_FORMAT)]


def compare(
    prompt: PromptOptions,
    engines: Annotated[str, Option(metavar="LIST", help=_ENGINES)] = "",
    engine: SingleLanes = None,
    set_: EngineSettings = None,
    repeats: Repeats = None,
    prompts: Prompts = None,
    trace_dir: TraceDir = None,
    format: RaceFormat = RaceFormat.table,
    *,
    models: ModelOptions,
    generation: GenerationOptions,
) -> int:
    """Compare engines: speed, acceptance, and whether they write the same text.

    They run one after another on the same models, warmed up, each with empty caches, in an order that changes from
    repeat to repeat; speeds and times are medians, acceptance and M count all repeats together. --set applies to all
    engines that have the option.
    """
    lanes = _lanes(engines, engine or [], engine_settings(set_))
    asked = checked_race(prompt, generation, lanes, prompts, repeats)
    return run_race(models.load, asked, trace_dir, lambda result, able: write(result, able, format))


def write(result: RaceResult, asked: Race, format: RaceFormat) -> None:
    """Print a race; nothing where there is nothing to say."""
    if text := WRITERS[format](report(result, asked)):
        print(text, flush=True)


def named(engines: str, single: list[str]) -> tuple[Lane, ...]:
    """The lanes of --engines and of each --engine. Raises UsageProblem."""
    return (parse_lanes([engines]) if engines else ()) + tuple(parse_lane(text) for text in single)


def _lanes(engines: str, single: list[str], common: dict[str, str]) -> tuple[Lane, ...]:
    """The lanes that the flags name. Raises UsageProblem."""
    lanes = named(engines, single)
    if len(lanes) < 2:
        raise UsageProblem("a comparison needs at least two engines",
                           "for example --engines autoregressive,pld,draft:shape=tree")
    known = {lane.engine: {option.name for option in methods.find(lane.engine).options} for lane in lanes}
    for name in common:
        if not any(name in names for names in known.values()):
            raise UsageProblem(f"none of these engines has an option {name!r}", "see spec-tui engines")
    return tuple(
        make_lane(lane.engine, {n: v for n, v in common.items() if n in known[lane.engine]} | lane.given())
        for lane in lanes
    )


def checked_race(
    prompt: PromptOptions,
    generation: GenerationOptions,
    lanes: tuple[Lane, ...],
    prompts: Path | None,
    repeats: int | None,
) -> Race:
    """The race that the flags ask for, checked. Raises UsageProblem."""
    if prompts is None:
        request = generation.request(prompt.read())
        asked = Race(lanes, request, (), REPEATS if repeats is None else repeats, audit=generation.audit)
    elif prompt != PromptOptions():
        raise UsageProblem("there are two kinds of prompts, one given and --prompts", "give one of them")
    else:
        found, request = read_prompts(prompts, generation.request())
        asked = Race(lanes, request, found.suite.prompts, 1 if repeats is None else repeats, audit=generation.audit)
    asked.check()
    return asked


def run_race(load: LoadRequest, asked: Race, traces: Path | None, show: Callable[[RaceResult, Race], None]) -> int:
    """Load, run, ``show`` what there is, also of a race that was interrupted. Returns the exit code. A lane that cannot
    run with what is loaded is named before the others do, and left out. Raises SpecError: the race cannot be run, or a
    lane failed in its warm-up."""
    question = f"this takes {asked.runs:,} runs: begin?"
    if asked.runs > _MANY and sys.stdin.isatty() and not confirmed(question, "ask for fewer"):
        narrate("nothing was run")
        return FAILED
    tell_addresses(asked.lanes)
    folder = TraceFolder(traces, asked) if traces is not None else None
    code = 0
    with Peers(load_decoder(load)) as racer:
        able = runnable(asked, racer.host.ready)
        if folder is not None:
            folder = TraceFolder(traces, able)
        _forecast(able, racer)
        result = RaceResult(keep_runs=folder is not None)

        def tell() -> None:
            nonlocal code
            show(result, able)
            code = ended(result, able, result.bugs) or LEFT_OUT * (able is not asked)

        def keep() -> None:
            if folder is not None:
                folder.write(result)
                narrate(f"wrote {counted(len(result.complete), 'trace')} to {traces}")

        follow(racer, able, result, RaceProgress(able))
        do_all(tell, keep)  # before other programs are closed, which takes time
    return code


def runnable(asked: Race, ready: Ready) -> Race:
    """The race without the lanes that cannot run with what is loaded, each of which is named. Raises UsageProblem where
    none is left."""
    reasons = {}
    for lane, label in zip(asked.lanes, asked.labels):
        spec = methods.find(lane.engine)
        stores = lane.datastores or asked.request.datastores
        reasons[label] = "" if spec.host else unavailable(
            spec, ready, spec.parse(lane.options), stores, lane.draft_model)
    if not any(reasons.values()):
        return asked
    for label, reason in reasons.items():
        if reason:
            narrate(f"{one_line(label)} cannot run, and is left out: {one_line(reason)}")
    lanes = tuple(lane for lane, label in zip(asked.lanes, asked.labels) if not reasons[label])
    if not lanes:
        raise UsageProblem("no engine can run with what is loaded", "spec-tui engines says what each needs")
    return replace(asked, lanes=lanes)


def _forecast(asked: Race, racer: Peers) -> None:
    """About how long it will take, where that is more than some seconds."""
    prompts = [turn for turns in asked.prompts for turn in turns] or [asked.request.conversation[-1][1]]
    length = sum(map(len, prompts)) // len(prompts) // LETTERS
    seconds = expected_seconds(asked.runs, len(asked.lanes), length, asked.request.max_new_tokens, racer.host.ready)
    if seconds is not None and seconds >= _SAID_FROM:
        narrate(f"{counted(asked.runs, 'run')}, about {in_time(seconds)}; less where drafts gain or answers end early, "
                "more on a busy machine")


def tell_addresses(lanes: tuple[Lane, ...]) -> None:
    """Say where prompts will be sent, before the first is."""
    for address in addresses(lanes):
        tell_address(address)


def follow(racer: Racer, asked: Race, result: RaceResult, progress: RaceProgress) -> None:
    """Run the race, to its end or to ctrl+c. Raises SpecError as ``race`` does."""
    try:
        with Interrupt() as interrupted, progress:
            for event in interrupted.over(race(racer, asked, interrupted, progress.show_preparing)):
                result.add(event)
                progress.show(event)
    except KeyboardInterrupt:  # the second one: it does not wait for the round
        pass


def ended(result: RaceResult, asked: Race, bugs: bool) -> int:
    """Say what went wrong. Returns the exit code; ``bugs``: a text was found to be wrong."""
    broke = [run for run in result.runs.values() if run.failed]
    for run in broke:
        tell_failure(f"{asked.labels[run.lane]}: {run.failed.message}", run.failed.hint)
    if result.finished is None or result.finished.reason == "cancelled":
        narrate(f"spec-tui: interrupted; {len(result.complete)} of {asked.runs} runs are complete")
        return INTERRUPTED
    cannot = all(run.failed.kind in _CANNOT for run in broke)
    return FAILED if bugs or not cannot else LEFT_OUT * bool(broke)


class RaceProgress(Status):
    """Which lane runs and how long it will take, on stderr, and nothing while one does: a line that replaces itself on
    a terminal, a line for each finished run in a pipe, though not within ``pause`` seconds of the one before."""

    def __init__(self, asked: Race, pause: float = 0.0) -> None:
        super().__init__()
        self._asked, self._labels, self._pause = asked, asked.labels, pause
        self._step, self._stage = (0, 1), ""
        self._lanes = len(asked.lanes)  # that have not failed
        self._warm = 0  # steps that were warm-ups
        self._began = self._said = perf_counter()

    def show(self, event: Event) -> None:
        if isinstance(event, LaneStarted):
            if event.step == 1:
                self._began = perf_counter()
            self._step = event.step, event.steps
            self._warm += event.warm_up
            what = "warm-up" if event.warm_up else f"repeat {event.repeat + 1} of {self._asked.repeats}"
            prompt = f", prompt {event.prompt + 1}" if self._asked.prompts else ""
            stage = f"{self._labels[event.lane]}, {what}{prompt}{self._left(event.step - 1)}"
            self._stage = stage
            super().show(Loading(stage, (event.step - 1) / event.steps))
        elif isinstance(event, LaneFinished) and event.failed is not None:
            self._lanes -= 1
            self.tell_left_out(self._labels[event.lane], event.failed, self._lanes)
        elif isinstance(event, LaneFinished) and not self.shown:
            step, steps = self._step
            if perf_counter() - self._said < self._pause and step < steps:
                return
            self._said = perf_counter()
            rate = "" if event.tokens_per_second is None else f", {event.tokens_per_second:.1f} tokens/s"
            label = one_line(self._labels[event.lane])
            narrate(f"{step - self._warm} of {steps - self._warm}: {label}: {counted(event.tokens, 'token')}{rate}"
                    f"{self._left(step)}")
        elif isinstance(event, Auditing):
            self._show_audit(event)

    def _show_audit(self, event: Auditing) -> None:
        """Which answer is audited, and how long it will take: lines in a pipe too, since it may take minutes."""
        now, number = perf_counter(), event.number or 1
        if number == 1:
            self._began = self._said = now
        left = race_left(now - self._began, number - 1, event.total or 1, 1)
        stage = f"auditing answer {number} of {event.total or 1}{left}"
        super().show(Loading(stage, event.done))
        if not self.shown and (number == 1 or now - self._said >= self._pause):
            self._said = now
            narrate(f"{stage}; ctrl+c ends it and keeps what is complete" if number == 1 else stage)

    def show_preparing(self, event: Preparing) -> None:
        """Progress of a run that is not timed."""
        stage = f"{self._stage}, {preparing_words(event)}" if preparing_share(event) != 1 else self._stage
        super().show(Loading(stage, (self._step[0] - 1) / self._step[1]))

    def _left(self, done: int) -> str:
        return race_left(perf_counter() - self._began, done, self._step[1], len(self._labels))
