"""``spec-tui run``: one prompt, one answer, without the application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from engines import methods
from engines.errors import SpecError, UsageProblem
from engines.hub import known_models
from engines.model.load_options import AUTO
from engines.report.answer import Answer
from engines.report.events import Failed, Finished, Loading, Started
from engines.report.run_state import RunState, fold
from engines.report.traces import TraceWriter
from engines.request import Request
from engines.wire import Event
from spec_tui.cli.failures import FAILED, INTERRUPTED, Interrupt
from spec_tui.cli.failures import narrate as say
from spec_tui.cli.option_groups import (
    EngineSettings,
    Format,
    GenerationOptions,
    ModelOrServerOptions,
    Only,
    OutputFormat,
    PromptOptions,
    Rejected,
    engine_settings,
)
from spec_tui.cli.output import JsonOutput, NarratedOutput, Output, TextOutput, remark
from spec_tui.cli.status_line import Status
from spec_tui.present.audit_text import STRICT
from spec_tui.present.text import one_line
from spec_tui.session.engine_commands import LoadRequest
from spec_tui.session.engine_service import Decoder
from spec_tui.session.environment import prepare_this_process
from spec_tui.session.kept_settings import begin_with, head_left_out, keep_head, with_head

_ENGINE = "Decoding method; spec-tui engines lists them. Default: depends on the loaded models."
_NARRATE = "Describe the run in sentences, one line per round, for screen readers."
_TRACE = "Record the run in this file, as lines of JSON. An existing file is overwritten only if it is a trace."
_EXPLAIN = "Afterwards explain why the answer was faster or slower than without drafts, and what to try first."
_AS_TEXT = Only(lambda given: given["format"] is Format.text and not given["narrate"],
                "text, not for --narrate or --format json")
_TEXT = Only(lambda given: given["format"] is Format.text, "--format text")
_DETAIL = "With --trace: record what the target predicts at every position, for the Step screen."


def run(
    prompt: PromptOptions,
    engine: Annotated[str, Option(metavar="ID", help=_ENGINE)] = "",
    set_: EngineSettings = None,
    trace: Annotated[Path | None, Option(metavar="FILE", help=_TRACE)] = None,
    detail: Annotated[bool, Option("--detail", help=_DETAIL)] = False,
    narrate: Annotated[bool, Option("--narrate", help=_NARRATE), _TEXT] = False,
    explain: Annotated[bool, Option("--explain", help=_EXPLAIN)] = False,
    rejected: Annotated[Rejected, _AS_TEXT] = False,
    format: OutputFormat = Format.text,
    *,
    models: ModelOrServerOptions,
    generation: GenerationOptions,
) -> int:
    """Decode one prompt. The answer goes to standard output, messages and numbers to standard error.

    On a terminal each token is marked as accepted, corrected or bonus, and control characters are made visible. In a
    pipe the text is exactly the model's.
    """
    if detail and trace is None:
        raise UsageProblem("--detail adds to a trace, but no trace is written", "add --trace FILE")
    output = JsonOutput() if format is Format.json else NarratedOutput() if narrate else TextOutput(rejected)
    options = engine_settings(set_)
    if engine:
        methods.find(engine).parse(options)  # wrong ones are told before anything is loaded
    request = replace(generation.request(prompt.read(), engine, options), detail=detail)
    load, request, kept = begin_with(models.load, request)
    writer = _Trace(trace)
    decoder = load_decoder(load)
    if kept is not None:
        say(f"note: {one_line(kept.words)}")
    output.explain = explain
    strict = models.load.strict or not decoder.ready.strict_helps
    return _decode(decoder, request, writer, output, generation.audit, strict=strict)


def load_decoder(load: LoadRequest, keeps: bool = True) -> Decoder:
    """Load the models in this process, with the head that is kept for the target where none is named; one that is named
    is kept, unless not to (``keeps``). Raises SpecError."""
    asked = with_head(load)
    if asked.head != load.head and asked.head is not None:
        say(f"note: the head {one_line(asked.head)}, kept for this model; --head {AUTO} forgets it")
    elif left_out := head_left_out(asked):
        say(f"note: {one_line(left_out)}; --head {AUTO} forgets it")
    decoder = load_once(asked)
    if keeps:
        keep_head(asked)
    return decoder


def load_once(load: LoadRequest) -> Decoder:
    """Load the models in this process, with a status line where stderr is a terminal. Raises SpecError."""
    prepare_this_process()
    with Status() as status:
        from spec_tui.session import loader

        decoder = loader.load(load, status.show)
    if load.server is not None:
        tell_address(decoder.ready.device)
    if load.model is None and load.server is None and sys.stderr.isatty():  # a script has read it once
        say(f"note: {known_models.default_notice()}")
    for warning in decoder.ready.warnings:
        say(f"note: {warning}")
    return decoder


def tell_address(address: str) -> None:
    """Say where prompts will be sent, before the first is."""
    say(f"note: prompts go to {one_line(address)}")


class _Trace:
    """The trace that was asked for, or none. What it cannot write is told after the answer, which goes on."""

    def __init__(self, path: Path | None) -> None:
        self._writer = TraceWriter(path) if path is not None else None
        self.problem: SpecError | None = None

    def write(self, event: Event) -> None:
        self._try(lambda writer: writer.write(event))

    def close(self) -> None:
        self._try(TraceWriter.close)

    def _try(self, step: Callable[[TraceWriter], None]) -> None:
        if self._writer is not None and self.problem is None:
            try:
                step(self._writer)
            except SpecError as error:
                self.problem = error


def _decode(decoder: Decoder, request: Request, trace: _Trace, output: Output, audit: bool, *,
            strict: bool) -> int:
    """Run it, and write what comes. Returns the exit code. Raises SpecError: the run failed, or, when all else is said,
    there is no trace of it."""
    run, cut = RunState(), None
    try:
        with Interrupt() as interrupted:
            found = _events(decoder, request, output, audit, interrupted, lambda: run.answer)
            for event in interrupted.over(found):
                trace.write(event)
                run = fold(run, event)
                if isinstance(event, Started):
                    _remark(event, request)
                output.show(event, run)
    except KeyboardInterrupt:  # the second one: it does not wait for the round
        cut = Finished("cancelled", tuple(token.emitted.token for token in run.tokens), run.text)
    except BaseException as error:
        if isinstance(error, SpecError):
            cut = Failed(error.message, error.hint, error.kind)
        if run.finished is not None:  # only the audit broke
            output.finish(run, audit)
        output.abandon()
        raise
    finally:
        if cut is not None and run.finished is None and run.failed is None:
            if run.started is not None:
                trace.write(cut)
            run = fold(run, cut)
        trace.close()
    output.finish(run, audit)
    if run.audited is not None and run.audited.verdict == "tie" and not strict:
        say(f"note: {STRICT}")
    if trace.problem is not None:
        raise trace.problem
    if (run.finished is not None and run.finished.reason == "cancelled") or (audit and run.audited is None):
        return INTERRUPTED
    return FAILED if run.audited is not None and run.audited.verdict == "BUG" else 0


def _remark(started: Started, request: Request) -> None:
    """What is to be known before the answer."""
    remark(started)
    if request.datastores and not started.datastores:
        searching = next(spec.id for spec in methods.specs() if "datastore" in spec.needs)
        say(f"note: {started.engine} searches no datastore with these options; --engine {searching} does")


def _events(
    decoder: Decoder,
    request: Request,
    output: Output,
    audit: bool,
    cancelled: Callable[[], bool],
    answer: Callable[[], Answer | None],
) -> Iterator[Event]:
    """The run's events, and ``Audited`` where the answer is to be checked and nothing was interrupted."""
    reading = Status()
    try:
        for event in decoder.run(request, cancelled=cancelled, progress=reading.show_preparing):
            reading.clear()
            yield event
    finally:
        reading.clear()
    if audit and not cancelled():
        output.abandon()
        with Status() as status:
            found = decoder.audit(answer(), cancelled, lambda done: status.show(Loading("auditing", done)))
        if found is not None:
            yield found
