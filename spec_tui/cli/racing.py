"""What ``compare`` and ``sweep`` share: a race in this process, its progress, its end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from engines.errors import UsageProblem
from engines.race.events import LaneFinished, LaneStarted
from engines.race.lanes import Lane, Race
from engines.race.result import LaneRun, Result
from engines.race.runner import Racer, race
from engines.report.events import Auditing, Loading
from engines.report.traces import TraceWriter
from engines.wire import Event
from spec_tui.cli.failures import FAILED, INTERRUPTED, Interrupt, narrate
from spec_tui.cli.options import GenerationOptions, PromptOptions
from spec_tui.cli.output import Status
from spec_tui.cli.prompts import read_prompts
from spec_tui.cli.run import load_decoder
from spec_tui.present.text import one_line
from spec_tui.session.client import LoadRequest

REPEATS = 6  # the fewest from which order statistics give an interval of 95 %


def ask(
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
    elif prompt.given:
        raise UsageProblem("there are two kinds of prompts, one given and --prompts", "give one of them")
    else:
        turns = read_prompts(prompts)
        asked = Race(lanes, generation.request(), turns, 1 if repeats is None else repeats, audit=generation.audit)
    asked.check()
    return asked


def hold(load: LoadRequest, asked: Race, traces: Path | None, show: Callable[[Result], None]) -> int:
    """Load, run, ``show`` what there is, also of a race that was interrupted. Returns the exit code.

    Raises:
        SpecError: the race cannot be run, or a lane failed in its warm-up.
    """
    shelf = Traces(traces, asked) if traces is not None else None
    racer = load_decoder(load)
    result = Result(keep_events=shelf is not None)
    follow(racer, asked, result, RaceProgress(asked))
    if shelf is not None:
        shelf.write(result)
        narrate(f"{len(result.complete)} traces are in {traces}")
    show(result)
    return ended(result, asked, result.bugs)


def follow(racer: Racer, asked: Race, result: Result, progress: RaceProgress) -> None:
    """Hold the race, to its end or to ctrl+c. Raises SpecError as ``race`` does."""
    try:
        with Interrupt() as interrupted, progress:
            for event in interrupted.over(race(racer, asked, interrupted)):
                result.add(event)
                progress.show(event)
    except KeyboardInterrupt:  # the second one: it does not wait for the round
        pass


def ended(result: Result, asked: Race, bugs: bool) -> int:
    """Say what went wrong. Returns the exit code; ``bugs``: a text was found to be wrong."""
    broke = [run.failed for run in result.runs.values() if run.failed]
    for problem in broke:
        narrate(f"spec-tui: {problem.message}" + (f"\n  {problem.hint}" if problem.hint else ""))
    if result.finished is None or result.finished.reason == "cancelled":
        narrate(f"spec-tui: interrupted; {len(result.complete)} of {_runs(asked, result)} runs are complete")
        return INTERRUPTED
    return FAILED if bugs or broke else 0


def _runs(asked: Race, result: Result) -> int:
    return len(asked.lanes) * asked.repeats * (result.started.prompts if result.started else 1)


class RaceProgress:
    """Which lane runs and how long it will take, on stderr, and nothing while one does: a line that replaces itself on
    a terminal, a line for each finished run in a pipe, though not within ``pause`` seconds of the one before."""

    def __init__(self, asked: Race, pause: float = 0.0) -> None:
        self._asked, self._labels, self._pause = asked, asked.labels, pause
        self._status = Status()
        self._step = (0, 1)
        self._began = self._said = perf_counter()

    def __enter__(self) -> RaceProgress:
        self._status.__enter__()
        return self

    def __exit__(self, *error) -> None:
        self._status.__exit__(*error)

    def show(self, event: Event) -> None:
        if isinstance(event, LaneStarted):
            if event.step == 1:
                self._began = perf_counter()
            self._step = event.step, event.steps
            what = "warm-up" if event.warm_up else f"repeat {event.repeat + 1} of {self._asked.repeats}"
            prompt = f", prompt {event.prompt + 1}" if self._asked.prompts else ""
            stage = f"{self._labels[event.lane]}, {what}{prompt}{self._left(event.step - 1)}"
            self._status.show(Loading(stage, (event.step - 1) / event.steps))
        elif isinstance(event, LaneFinished) and not self._status.shown:
            step, steps = self._step
            if perf_counter() - self._said < self._pause and step < steps:
                return
            self._said = perf_counter()
            rate = "" if event.tokens_per_second is None else f", {event.tokens_per_second:.1f} tokens/s"
            label = one_line(self._labels[event.lane])
            narrate(f"{step} of {steps}: {label}: {event.tokens} tokens{rate}{self._left(step)}")
        elif isinstance(event, Auditing):
            self._status.show(Loading("auditing", event.done))

    def _left(self, done: int) -> str:
        """The time that is left at the pace so far, once there is one, of races that take a while."""
        seconds = (perf_counter() - self._began) / max(1, done) * (self._step[1] - done)
        if done < len(self._labels) or seconds < 20:
            return ""
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


class Traces:
    """A folder with a trace for each complete run.

    Raises:
        UsageProblem: it cannot be made, or holds other files of these names.
    """

    def __init__(self, folder: Path, asked: Race) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageProblem(f"the folder {folder} cannot be made: {error.strerror}", "name another") from None
        self._folder, self._lanes = folder, asked.lanes
        for lane in range(len(asked.lanes)):  # the others are named alike
            TraceWriter(self._path(LaneRun(lane, 0, 0)))

    def write(self, result: Result) -> None:
        """Write what is complete. Raises RunFailed where the disk is full."""
        for run in result.complete:
            with TraceWriter(self._path(run)) as trace:
                for event in run.events:
                    trace.write(event)

    def _path(self, run: LaneRun) -> Path:
        name = re.sub(r"[^A-Za-z0-9=.-]+", "-", self._lanes[run.lane].label)[:60]
        return self._folder / f"{run.lane + 1}-{name}.repeat-{run.repeat + 1}.prompt-{run.prompt + 1}.jsonl"
