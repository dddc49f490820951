"""``spec-tui advise``: which engine, with which numbers, for this model and these prompts."""

from __future__ import annotations

import gc
import os
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

from typer import Option

from engines.advice.advice_events import ScreeningStarted
from engines.advice.adviser import Adviser
from engines.advice.halving import sampled
from engines.cost import other_machine
from engines.errors import ModelUnavailable, UsageProblem
from engines.folders import check_folder, read_input
from engines.hub.known_models import default_model, label
from engines.hub.model_source import locate
from engines.race.race_events import LaneFinished, LaneStarted
from engines.report.events import Auditing, Loading, Preparing
from engines.report.wording import counted
from engines.wire import Event
from spec_tui.cli.advise_server import advise_server
from spec_tui.cli.export import write_document
from spec_tui.cli.failures import FAILED, INTERRUPTED, Interrupt, do_all, narrate
from spec_tui.cli.option_groups import Alone, Format, GenerationOptions, ModelOrServerOptions, OutputFormat, Without
from spec_tui.cli.prompts import LARGEST, comma_separated, read_prompts
from spec_tui.cli.run import load_decoder
from spec_tui.cli.status_line import Status
from spec_tui.export.advice_report import TITLE, Advice, advised, report
from spec_tui.export.report import WRITERS
from spec_tui.present.advice_text import planned
from spec_tui.present.progress_text import time_left
from spec_tui.present.text import one_line
from spec_tui.session import kept_settings
from spec_tui.session.advice_setup import foresee, prepare

_PROMPTS = ("Prompts like yours: one per line, lines of JSON with prompt, turns or messages (as in Spec-Bench or an "
            "OpenAI chat log), or one JSON document; or coding: twelve tasks that ship; - is stdin. Default: our own.")
_TASKS = "Only prompts of these kinds, for example code,edit."
_SAMPLE = "Take this many of them, spread evenly over the kinds."
_MINUTES = "Time for the measurements."
_SAVE = "Use the advice from now on with this model, unless an engine is named."
_UNDO = "Measure nothing; forget what --save kept for this model."
_WHAT_IF = ("Also model the speeds of another machine: memory=1000GB/s,flops=100TFLOPS and, with commas between, "
            "weights=BYTES, overhead=MS, batch=REQUESTS; batch=8 alone for eight requests at once on this one; or a "
            "file with its t(n): lines of rows,seconds, or the output of spec-tui price --format json from there.")
_ALSO = "Also try the engines that need a draft model with this one. Repeatable."
_HTML = "Write the report as a web page too, in one file."
_LONGEST = 24 * 60.0


def advise(
    prompts: Annotated[Path | None, Option(metavar="FILE", help=_PROMPTS)] = None,
    task: Annotated[str, Option(metavar="LIST", help=_TASKS)] = "",
    sample: Annotated[int | None, Option(metavar="N", min=1, help=_SAMPLE)] = None,
    minutes: Annotated[float, Option(metavar="T", help=_MINUTES)] = 5.0,
    html: Annotated[Path | None, Option(metavar="FILE", help=_HTML)] = None,
    save: Annotated[bool, Option("--save", help=_SAVE)] = False,
    undo: Annotated[bool, Option("--undo", help=_UNDO), Alone(frozenset({"model", "offline"}))] = False,
    what_if: Annotated[str | None, Option("--what-if", metavar="MACHINE", help=_WHAT_IF)] = None,
    also: Annotated[list[str] | None, Option("--also-draft-model", metavar="DIR|HUB_ID", help=_ALSO)] = None,
    format: OutputFormat = Format.text,
    *,
    models: ModelOrServerOptions,
    generation: Annotated[GenerationOptions, Without("audit")],
) -> int:
    """Find the engine and the settings that are fastest with your model on prompts like yours.

    Every engine that can run here takes part, on the same prompts, in rounds: first all with their defaults, then the
    faster half with a few settings, then the three fastest. The last round gets half of the time, and the verdict uses
    its numbers alone. In a short time only the most promising take part, so that answers are long enough to judge; the
    plan is printed first. ctrl+c stops and reports what is known so far. With --server it reports what the server
    accepts of its drafts, and how many tokens it should draft; with --backend, the same for each of llama.cpp's
    drafting methods.
    """
    _check_server(models, save, what_if, also, html)
    if undo:
        return _undo(models)
    if not 0 < minutes <= _LONGEST:
        raise UsageProblem(f"minutes {minutes:g} is out of range", f"--minutes takes more than 0, up to {_LONGEST:g}")
    asked, request = read_prompts(prompts, generation.request())
    asked = replace(asked, suite=asked.suite.of_tasks(comma_separated(task, "--task")))
    if sample is not None:
        asked = replace(asked, suite=sampled(asked.suite, sample))
    if html is not None:
        _check_page(html)
    machine = None
    if what_if is not None:
        machine = other_machine.parse(what_if, lambda name: read_input(Path(name), LARGEST, "a file in --what-if")[1])
    with Status() as status:
        for name in also or ():  # before anything takes time
            locate(name, None, models.load.terms, "draft model", status.show)
    decoder = load_decoder(models.load)
    if models.server is not None or models.backend:
        return advise_server(decoder, asked.suite, request, minutes * 60, format)
    adviser, left_out, notes = prepare(decoder, asked.suite, request, minutes * 60, also or ())
    narrate(planned(foresee(decoder.ready, adviser.suite, request, minutes * 60, also or ())))
    gc.collect()
    gc.freeze()  # what is loaded stays, so that collecting garbage before each run is quick
    interrupted = _follow(adviser)
    done = Advice(adviser, decoder.ready, models.load, left_out, (*asked.notes, *notes), machine)
    do_all(
        lambda: print(WRITERS["json" if format is Format.json else "table"](report(done)), flush=True),
        lambda: html and write_document(html, WRITERS["html"](report(done)), True, "name another file"),
        lambda: save and _save(done),
    )
    if interrupted:
        return INTERRUPTED
    return FAILED if done.bugs else 0


def _undo(models: ModelOrServerOptions) -> int:
    """Forget what is kept for the model, which may be gone itself. Raises ModelUnavailable where there is neither."""
    if kept_settings.forget(models.load):
        narrate("forgotten: the default engine answers again")
        return 0
    load, name = replace(models, offline=True).load, models.model or default_model()
    try:
        locate(name, load.revision, load.terms)
    except ModelUnavailable:
        raise ModelUnavailable(f"nothing is kept for {name}, and no such model is on this machine",
                               "spec-tui model list names those that are") from None
    narrate(f"nothing is kept for {label(name)}")
    return 0


def _check_server(models: ModelOrServerOptions, *others: object) -> None:
    """Raises UsageProblem for what is not done with a model in another program."""
    if (models.server is not None or models.backend) and any(others):
        raise UsageProblem("with a server or llama.cpp only its acceptance is measured",
                           "leave out --save, --what-if, --also-draft-model and --html")


def _save(done: Advice) -> None:
    """Keep what is advised for the model; nothing without a verdict. Raises RunFailed."""
    lane = advised(done)
    if lane is None:
        narrate("nothing is kept: there is no verdict")
        return
    lane = replace(lane, datastores=lane.datastores or done.found.request.datastores)
    kept = kept_settings.keep(done.load, lane, "found by spec-tui advise")
    narrate(f"from now on: {one_line(kept.words)}")


def _follow(adviser: Adviser) -> bool:
    """Run it to its end, or to ctrl+c. Returns whether it was interrupted."""
    progress = AdviceProgress(adviser)
    interrupted = Interrupt()
    try:
        with interrupted, progress:
            for event in interrupted.over(adviser.run(interrupted, progress.show_preparing)):
                progress.show(event)
    except KeyboardInterrupt:  # the second one: it does not wait for the round
        pass
    return interrupted() and not adviser.finished


class AdviceProgress(Status):
    """Which round and which setting, and the time left, on stderr: a line that replaces itself on a terminal, a line
    for each round in a pipe."""

    def __init__(self, adviser: Adviser) -> None:
        super().__init__()
        self._adviser = adviser
        self._began = perf_counter()
        self._stage = ""
        self._lanes = 0  # of the round, that have not failed

    def show(self, event: Event) -> None:
        if isinstance(event, ScreeningStarted):
            self._lanes = len(event.asked.lanes)
            self._stage = f"stage {event.number} of {event.rounds}, {counted(len(event.asked.lanes) - 1, 'setting')}"
            if not self.shown:
                most = counted(event.asked.request.max_new_tokens, "token")
                narrate(f"{self._stage}, answers of at most {most}{self._left()}")
        elif isinstance(event, LaneStarted):
            lanes = self._adviser.rounds[-1].asked.labels
            what = "warm-up" if event.warm_up else f"prompt {event.prompt + 1}"
            self._say(f"{self._stage}: {one_line(lanes[event.lane])}, {what}{self._left()}")
        elif isinstance(event, LaneFinished) and event.failed is not None:
            self._lanes -= 1
            self.tell_left_out(self._adviser.rounds[-1].asked.labels[event.lane], event.failed, self._lanes)
        elif isinstance(event, Auditing):
            self._say(f"{self._stage}: auditing texts that differ")

    def show_preparing(self, event: Preparing) -> None:
        """What a run that is not timed waits for; its stage says enough."""

    def _say(self, stage: str) -> None:
        done = min(1.0, (perf_counter() - self._began) / self._adviser.seconds)
        super().show(Loading(stage, done))

    def _left(self) -> str:
        return time_left(self._adviser.seconds - (perf_counter() - self._began))


def _check_page(path: Path) -> None:
    """Raises UsageProblem where something else than a report of ours is there, or no folder."""
    check_folder(path, "name another file after --html")
    ours = os.path.isfile(path) and f"<title>{TITLE}" in read_input(path, LARGEST, "another file")[1][:4096]
    if os.path.exists(path) and not ours:
        raise UsageProblem(f"{path} is not a report of advise, so it is not overwritten", "name another file")
