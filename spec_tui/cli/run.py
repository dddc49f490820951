"""``spec-tui run``: one prompt, one answer, without the application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from typer import Option

from engines.errors import SpecError, UsageProblem
from engines.methods import registry
from engines.report.answer import Answer
from engines.report.events import Failed, Finished, Loading, Started
from engines.report.traces import TraceWriter
from engines.request import Request
from engines.wire import Event
from spec_tui.cli.failures import FAILED, INTERRUPTED, narrate
from spec_tui.cli.interrupt import Interrupt
from spec_tui.cli.options import (
    EngineSettings,
    Format,
    GenerationOptions,
    ModelOptions,
    OutputFormat,
    PromptOptions,
    engine_settings,
)
from spec_tui.cli.output import JsonOutput, NarratedOutput, Record, Status, TextOutput
from spec_tui.session.client import LoadRequest
from spec_tui.session.environment import prepare_this_process
from spec_tui.session.service import Decoder

Output = TextOutput | NarratedOutput | JsonOutput
_ENGINE = "How to decode; see spec-tui engines. Default: draft where a draft model fits, else pld."
_NARRATE = "Tell the run round by round, a line each, for screen readers."
_TRACE = "Write the run's events as lines of JSON. Overwrites nothing but a trace."
_DETAIL = "With --trace: record what the target has at every row, which the Step screen shows."


def run(
    prompt: PromptOptions,
    engine: Annotated[str, Option(metavar="ID", help=_ENGINE)] = "",
    set_: EngineSettings = None,
    trace: Annotated[Path | None, Option(metavar="FILE", help=_TRACE)] = None,
    detail: Annotated[bool, Option("--detail", help=_DETAIL)] = False,
    narrate: Annotated[bool, Option("--narrate", help=_NARRATE)] = False,
    format: OutputFormat = Format.text,
    *,
    models: ModelOptions,
    generation: GenerationOptions,
) -> int:
    """Ask once; the answer streams to stdout, everything else goes to stderr.

    On a terminal each token shows its fate, and what could steer the terminal is made visible. A pipe gets
    the model's exact text.
    """
    if detail and trace is None:
        raise UsageProblem("--detail says more in a trace, and none is written", "add --trace FILE")
    options = engine_options(engine, engine_settings(set_))
    request = replace(generation.request(prompt.read(), engine, options), detail=detail)
    writer = TraceWriter(trace) if trace is not None else None
    decoder = load_decoder(models.load)
    plain = NarratedOutput if narrate else TextOutput
    output = JsonOutput() if format is Format.json else plain()
    return _decode(decoder, request, writer, output, generation.audit)


def load_decoder(load: LoadRequest) -> Decoder:
    """Load the models in this process, with a status line where stderr is a terminal. Raises SpecError."""
    prepare_this_process()
    with Status() as status:
        import engines

        decoder = engines.load(**asdict(load), progress=status.show)
    for warning in decoder.ready.warnings:
        narrate(f"note: {warning}")
    return decoder


def engine_options(engine: str, given: dict[str, str]) -> dict[str, str]:
    """These options, checked where the engine is named.

    Raises:
        UsageProblem: malformed, unknown or out of range (the engine's options are named); no such engine.
    """
    if engine:
        registry.find(engine).parse(given)
    return given


def _decode(decoder: Decoder, request: Request, trace: TraceWriter | None, output: Output, audit: bool) -> int:
    record = Record(audit=audit)
    try:
        with Interrupt() as interrupted:
            for event in interrupted.over(_events(decoder, request, output, audit, interrupted)):
                if trace is not None:
                    trace.write(event)
                output.show(event, record.add(event))
                if isinstance(event, Started) and request.datastores and not event.datastores:
                    narrate(f"note: {event.engine} searches no datastore with these options; --engine rest does")
    except KeyboardInterrupt:  # the second one: it does not wait for the round
        _end(record, trace, Finished("cancelled", tuple(record.tokens), "".join(record.texts)))
    except BaseException as error:
        if isinstance(error, SpecError):
            _end(record, trace, Failed(error.message, error.hint, error.kind))
        if record.reason:  # only the audit broke
            output.finish(record)
        output.abandon()
        raise
    finally:
        if trace is not None:
            trace.close()
    output.finish(record)
    return _exit_code(record)


def _events(
    decoder: Decoder, request: Request, output: Output, audit: bool, cancelled: Callable[[], bool]
) -> Iterator[Event]:
    """The run's events, and ``Audited`` where the answer is to be checked and nothing was interrupted."""
    seen = []
    for event in decoder.run(request, cancelled=cancelled):
        if audit:
            seen.append(event)
        yield event
    if audit and not cancelled():
        output.abandon()
        with Status() as status:
            answer = Answer.from_events(seen)
            found = decoder.audit(answer, cancelled, lambda done: status.show(Loading("auditing", done)))
        if found is not None:
            yield found


def _exit_code(record: Record) -> int:
    if record.reason == "cancelled" or (record.audit and record.audited is None):
        return INTERRUPTED
    return FAILED if record.audited is not None and record.audited.verdict == "BUG" else 0


def _end(record: Record, trace: TraceWriter | None, last: Finished | Failed) -> None:
    """Close a run that did not come to its own end."""
    if record.end is not None:
        return
    record.end = last
    if trace is not None and record.started is not None:
        trace.write(last)
