"""``spec-tui advise --server`` and ``--backend``: how many tokens another program should draft, by what it accepts on
prompts like yours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines.advice.halving import spread
from engines.advice.server_acceptance import ServerAcceptance
from engines.bench.suite import Suite
from engines.errors import SpecError
from engines.report.wording import counted
from spec_tui.cli.failures import INTERRUPTED, Interrupt, narrate
from spec_tui.cli.option_groups import Format
from spec_tui.export.report import Report, text
from spec_tui.present.tables import Rows
from spec_tui.present.text import as_json

if TYPE_CHECKING:
    from engines.report.events import RunEvent
    from engines.request import Request
    from engines.servers.served_model import ServedModel

_FAILURES = 3  # answers that fail in a row end the questions


def advise_server(server: ServedModel, suite: Suite, request: Request, seconds: float, format: Format) -> int:
    """Ask the prompts until the time is over, or ctrl+c, in each way in which the server drafts, and say what follows;
    the exit code. Raises SpecError where nothing was answered in any way."""
    told: list[dict[str, Any]] = []
    failed: SpecError | None = None
    with Interrupt() as interrupted:
        for way in server.ways:
            asked = replace(request, engine=server.spec.id, options=dict(way))
            title = "".join(f"\n{name}={value}\n" for name, value in way.items())
            share = seconds / len(server.ways)
            try:
                answers = _answers(server, suite, asked, share, interrupted)
                found = ServerAcceptance.of(_until_stopped(answers, interrupted))
            except SpecError as error:
                failed = failed or error
                narrate(f"{title}nothing was answered")
                continue
            if found.answers:
                told.append({"options": dict(way)} | _row(found))
            if found.answers and format is Format.text:
                print(title + text(report(found, server.size_setting)), flush=True)
            if interrupted():
                break
    if failed is not None and not told:
        raise failed
    if not told:
        narrate("stopped before the first answer")
    elif format is Format.json:
        print(as_json({"server": server.ready.backend} | ({"ways": told} if len(server.ways) > 1 else told[0])))
    return INTERRUPTED if interrupted() else 0


def _row(found: ServerAcceptance) -> dict[str, Any]:
    pays = [found.pays_below(size) for size in range(1, len(found.expected))]
    return asdict(found) | {"expected": found.expected, "best": found.best, "pays_below": pays}


def _until_stopped(answers: Iterator[list[RunEvent]], interrupted: Interrupt) -> Iterator[list[RunEvent]]:
    """The answers before the second ctrl+c, which does not wait for the one under way."""
    with suppress(KeyboardInterrupt):
        yield from interrupted.over(answers)


def _answers(
    server: ServedModel, suite: Suite, request: Request, seconds: float, cancelled: Callable[[], bool]
) -> Iterator[list[RunEvent]]:
    """The events of each answer; one that fails is told and left out. After some in a row, or one of which the server
    tells no drafts, no more are asked. Raises SpecError, that of the last, where all failed."""
    end, cases, answered, in_a_row, failed = perf_counter() + seconds, spread(suite), False, 0, None
    for number, case in enumerate(cases, 1):
        asked = replace(request, conversation=(*request.conversation, ("user", case.turns[0])))
        try:
            events = list(server.run(asked, cancelled))
        except SpecError as error:
            if cancelled():
                return
            in_a_row, failed = in_a_row + 1, error
            narrate(f"answer {number} failed: {error.message}")
        else:
            answered, in_a_row = True, 0
            yield events
            narrate(f"answer {number} of at most {len(cases)}")
            told = ServerAcceptance.of([events])
            if told.drafted is None and not told.accepted:
                break  # it will tell nothing of other prompts either
        if in_a_row == _FAILURES or perf_counter() >= end or cancelled():
            break
    if failed is not None and not answered:
        raise failed


def report(found: ServerAcceptance, setting: str) -> Report:
    """What is known and what follows; ``setting`` names the server's option."""
    made = "" if found.tokens_per_step is None else f", {found.tokens_per_step:.2f} tokens a step"
    rows: Rows = [["drafted", "accepted", "tokens a step", "pays below"]]
    for size, share in enumerate(found.accepted, 1):
        rows.append([str(size), f"{share:.0%}", f"{found.expected[size]:.2f}", f"{found.pays_below(size):.0%}"])
    return Report(verdict=[f"{counted(found.answers, 'answer')}{made}"], tables=[rows] if found.accepted else [],
                  notes=[_advice(found, f" ({setting})" * bool(setting))])


def _advice(found: ServerAcceptance, where: str) -> str:
    if found.drafted == 0:
        return "The server drafted nothing on these prompts."
    if not found.accepted:
        return ("The server does not report acceptance by depth; vLLM does, with --per-request-spec-decode-metrics "
                "detailed.")
    if found.best is None:
        return ("The cost of one more drafted token is not known: all drafts had one size, or steps have no times. "
                "One more drafted token pays if it adds less time than the last column says, as a share of a step "
                f"without a draft: measure it, then start the server with the largest draft that pays{where}.")
    cost = f"One more drafted token takes {found.row:.0%} of the time of a step without a draft."
    if not found.best:
        return f"{cost} No draft pays on these prompts: start the server without drafts."
    more = " or more: deeper drafts were not tried" if found.best == len(found.accepted) else ""
    return f"{cost} Start the server with drafts of {counted(found.best, 'token')}{more}{where}."
