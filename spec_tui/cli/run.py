"""``spec-tui run``: one prompt, one answer, without the application."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from engines import registry
from engines.answer import Answer
from engines.errors import SpecError, UsageProblem
from engines.events import Event, Failed, Finished, Loading, Started
from engines.request import LAWS, Request
from spec_tui.cli.errors import FAILED, INTERRUPTED, narrate
from spec_tui.cli.interrupt import Interrupt
from spec_tui.cli.options import (
    AllowPickle,
    Datastores,
    Device,
    DraftModel,
    DraftRevision,
    Dtype,
    Format,
    Model,
    OutputFormat,
    Revision,
    TrustRemoteCode,
)
from spec_tui.cli.output import JsonOutput, Record, Status, TextOutput
from spec_tui.cli.prompt import read_prompt
from spec_tui.session.client import LoadRequest
from spec_tui.session.environment import prepare_this_process
from spec_tui.session.service import Decoder
from spec_tui.session.trace import TraceWriter

_ENGINE = "How to decode; see spec-tui engines. Default: draft where a draft model fits, else pld."
_LAW = "Who decides what is accepted. To see what bias looks like, LOSSY: " + ", ".join(
    name for name, law in LAWS.items() if not law.lossless) + "."
_SET = "An option of the engine; repeatable."
_AUDIT = "Check every token against the plain model afterwards; exit code 1 on a BUG."
_TRACE = "Write the run's events as lines of JSON. Overwrites nothing but a trace."

def run(
    prompt: Annotated[str | None, Argument(metavar="PROMPT", help="What to ask. - reads stdin.")] = None,
    prompt_file: Annotated[str | None, Option(metavar="FILE|-", help="Read the prompt from a file.")] = None,
    engine: Annotated[str, Option(metavar="ID", help=_ENGINE)] = "",
    model: Model = None,
    draft_model: DraftModel = None,
    revision: Revision = None,
    draft_revision: DraftRevision = None,
    max_new_tokens: Annotated[int, Option(metavar="N", help="Longest answer, in tokens.")] = 256,
    temperature: Annotated[float, Option(metavar="T", help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, Option(metavar="P", help="Sample from the likeliest tokens of this mass.")] = 1.0,
    top_k: Annotated[int, Option(metavar="K", help="Sample from the K likeliest tokens; 0: from all.")] = 0,
    seed: Annotated[int, Option(metavar="S", help="Same seed, same text.")] = 0,
    law: Annotated[str, Option(metavar="|".join(LAWS), help=_LAW)] = "exact",
    dtype: Dtype = "auto",
    device: Device = "auto",
    datastore: Datastores = None,
    allow_pickle: AllowPickle = False,
    trust_remote_code: TrustRemoteCode = False,
    system: Annotated[str | None, Option(metavar="TEXT", help="System prompt. Default: none.")] = None,
    raw: Annotated[bool, Option("--raw", help="Feed the prompt without the chat template.")] = False,
    set_: Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help=_SET)] = None,
    audit: Annotated[bool, Option("--audit", help=_AUDIT)] = False,
    trace: Annotated[Path | None, Option(metavar="FILE", help=_TRACE)] = None,
    format: OutputFormat = Format.text,
) -> Callable[[], int]:
    """Ask once; the answer streams to stdout, everything else goes to stderr.

    On a terminal each token shows its fate, and what could steer the terminal is made visible. A pipe gets
    the model's exact text.
    """

    def execute() -> int:
        text = read_prompt(prompt, prompt_file)
        turns = (("system", system),) if system is not None else ()
        request = Request(
            conversation=(*turns, ("user", text)),
            engine=engine,
            options=engine_options(engine, set_ or []),
            law=law,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            max_new_tokens=max_new_tokens,
            raw=raw,
            datastores=tuple(dict.fromkeys(datastore or ())),
        )
        request.check()
        writer = TraceWriter(trace) if trace is not None else None
        load = LoadRequest(
            model, draft_model, dtype, device, revision, draft_revision, allow_pickle, trust_remote_code
        )
        decoder = load_decoder(load)
        return _decode(decoder, request, writer, JsonOutput() if format is Format.json else TextOutput(), audit)

    return execute


def load_decoder(load: LoadRequest) -> Decoder:
    """Load the models in this process, with a status line where stderr is a terminal. Raises SpecError."""
    prepare_this_process()
    with Status() as status:
        import engines

        decoder = engines.load(**asdict(load), progress=status.show)
    for warning in decoder.ready.warnings:
        narrate(f"note: {warning}")
    return decoder


def engine_options(engine: str, settings: list[str]) -> dict[str, str]:
    """The engine's options out of KEY=VALUE, checked where the engine is named.

    Raises:
        UsageProblem: malformed, unknown or out of range (the engine's options are named); no such engine.
    """
    given = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageProblem(f"--set {setting} is not KEY=VALUE", "for example --set num_tokens=8")
        given[name.strip()] = value
    if engine:
        registry.find(engine).parse(given)
    return given


def _decode(
    decoder: Decoder, request: Request, trace: TraceWriter | None, output: TextOutput | JsonOutput, audit: bool
) -> int:
    record = Record(audit=audit)
    try:
        with Interrupt() as interrupted:
            for event in interrupted.over(_events(decoder, request, output, audit, interrupted)):
                if trace is not None:
                    trace.write(event)
                output.show(record.add(event))
                if isinstance(event, Started) and request.datastores and not event.datastores:
                    narrate(f"note: the engine {event.engine} searches no datastore; rest does (--engine rest)")
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
    decoder: Decoder, request: Request, output: TextOutput | JsonOutput, audit: bool, cancelled: Callable[[], bool]
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
