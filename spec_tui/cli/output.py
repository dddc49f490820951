"""What ``run`` writes: the answer to stdout, as text or as one JSON object, and the rest to stderr."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from engines.errors import UsageProblem
from engines.report import encoding
from engines.report.events import Prefilled, Round, Started
from engines.report.metrics import run_object
from engines.report.run_state import RunState
from engines.report.wording import counted
from engines.wire import Event
from spec_tui.cli.failures import narrate
from spec_tui.export import about
from spec_tui.present.ansi import FateStyle
from spec_tui.present.audit_text import sentence
from spec_tui.present.narration import narration, passes
from spec_tui.present.rejected import labels
from spec_tui.present.speed_caveats import speed_caveats
from spec_tui.present.speed_explained import explanation
from spec_tui.present.tables import LEAST, or_dash
from spec_tui.present.text import as_json, one_line, sanitise

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE = 10_000  # columns: wider than any row
_UNAUDITED = "stopped before the first token"


def remark(started: Started) -> None:
    """Say on stderr what is to be known before the answer: warnings, and that it is not lossless."""
    for warning in started.warnings:
        narrate(f"note: {warning}")
    if started.lossy:
        narrate(f"LOSSY: the law {started.law} changes the target's distribution")


def summary(run: RunState) -> str:
    """The numbers of a run in a few lines, for people."""
    m, said = run.metrics, dict(about.outcome(run))
    name = run.started.engine if run.started else "run"
    length = "" if m.mean_generated_length is None else f", {m.mean_generated_length:.2f} tokens per verify step (M)"
    rate = f" ({m.acceptance_rate:.0%})" if m.acceptance_rate is not None else ""
    drafted, accepted = (or_dash(number, str, "(not disclosed)") for number in (m.drafted, m.accepted))
    speed = f", {said['speed']}" if "speed" in said else ""
    lines = [
        f"{name}: {counted(m.new_tokens, m.unit)}{speed}, {said['ended']}",
        f"{passes(m)}{length}",
        f"drafted {drafted}, accepted {accepted}{rate}",
    ]
    if (even := m.break_even) is not None and m.drafted:
        lines.append(f"break-even by t(n): {even.needs:.2f} tokens per verify step; for the speed-up: spec-tui compare")
    lines.append(f"seconds: {said['seconds']}")
    if m.matches:
        lengths = ", ".join(f"{length}: {rounds}" for length, rounds in sorted(m.matches.items()))
        lines.append(f"rounds by length of the match: {lengths}")
    notes = (f"note: {caveat.words}" for caveat in speed_caveats(run))
    return "\n".join([*lines, *filter(None, [said.get("distribution")]), *notes])


class Output:
    """Writes a run as it comes in. ``explain``: say at the end why it was faster or slower than without drafts."""

    explain = False

    def show(self, event: Event, run: RunState) -> None:
        """What an event brought; ``run`` is the run with it."""

    def abandon(self) -> None:
        """No more text: what was written stays, and messages begin on a line of their own."""

    def finish(self, run: RunState, audit: bool) -> None:
        """The end of a run; ``audit``: one was asked for."""


class TextOutput(Output):
    """Streams the answer: marked on a terminal, exact in a pipe. ``rejected``: write rejected draft tokens, too, where
    they were rejected. Raises UsageProblem where there are no marks to tell them by."""

    def __init__(self, rejected: bool = False) -> None:
        self._style = FateStyle.of(sys.stdout, os.environ)
        if rejected and not self._style.marks:
            raise UsageProblem("--rejected marks tokens, but a pipe gets the unmarked text",
                               "leave --rejected out, run on a terminal, or set FORCE_COLOR=1")
        self._rejected = rejected
        self._open_line = False
        if self._style.exact:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")

    def show(self, event: Event, run: RunState) -> None:
        tokens = (event.first,) if isinstance(event, Prefilled) else event.emitted if isinstance(event, Round) else ()
        if not tokens:
            return
        gone = labels(event) if self._rejected and isinstance(event, Round) else None
        sys.stdout.write(self._style.text(tokens, gone))
        sys.stdout.flush()
        written = "".join(token.text for token in tokens)
        self._open_line = not written.endswith("\n") if written else self._open_line

    def abandon(self) -> None:
        if self._open_line and (sys.stdout.isatty() or _messages_follow_in_the_same_file()):
            print(flush=True)
        self._open_line = False

    def finish(self, run: RunState, audit: bool) -> None:
        self.abandon()
        style = FateStyle.of(sys.stderr, os.environ)
        if self._style.marks and style.marks:
            print(f"\n{style.legend(self._rejected)}", file=sys.stderr)
        narrate(summary(run))
        if self.explain:
            narrate("\n".join(["", *explanation(run)]))
        if audit:
            narrate(f"audit: {sentence(run.audited) if run.audited else _UNAUDITED}")


def _messages_follow_in_the_same_file() -> bool:
    """Whether stdout and stderr were sent to one file or pipe."""
    try:
        return os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno())
    except (OSError, ValueError):  # closed, or no file
        return False


class NarratedOutput(Output):
    """Tells the run line by line, for those who hear the terminal."""

    def show(self, event: Event, run: RunState) -> None:
        for line in narration(event, run):
            print(sanitise(line), flush=True)

    def finish(self, run: RunState, audit: bool) -> None:
        for said in explanation(run) if self.explain else ():
            print(sanitise(said), flush=True)
        if audit and run.audited is None:
            print(f"audit: {_UNAUDITED}", flush=True)


class JsonOutput(Output):
    """One object at the end. Non-ASCII is escaped, so nothing in it can steer a terminal. ``problems``: of the trace
    that the run was read from."""

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self._problems = problems

    def finish(self, run: RunState, audit: bool) -> None:
        if run.started is None:
            return
        end, tokens = run.finished, [token.emitted.token for token in run.tokens]
        reason = (end.ended_by or end.reason) if end is not None else None
        found = run_object(run.started, run.metrics, tokens, run.text, reason)
        if run.failed:
            found["failed"] = encoding.plain(run.failed)
        if self._problems:
            found["problems"] = [*self._problems]
        if self.explain:
            found["explanation"] = explanation(run)
        if audit:
            found["audit"] = encoding.plain(run.audited) if run.audited else None
        print(as_json(found), flush=True)


def table(rows: Iterable[Sequence[str]]) -> Table:
    """Columns, the first one of names; the others are folded where the terminal is narrow."""
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    found.add_column(no_wrap=True)
    for cells in rows:
        found.add_row(*(Text(one_line(cell), overflow="fold") for cell in cells))
    return found


def console() -> Console:
    """Prints tables: as wide as the terminal or COLUMNS; in a pipe without COLUMNS each row is one line."""
    from rich.console import Console

    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        found = Console(highlight=False)
        found.width = max(found.width, LEAST)  # rich writes empty lines where there is no room
        return found
    return Console(highlight=False, file=_Unpadded(), width=_PIPE)


class _Unpadded(io.TextIOBase):
    """Standard output without the spaces that fill columns to the end of a line."""

    def write(self, text: str) -> int:
        return sys.stdout.write(re.sub(" +(?=\n)", "", text))

    def flush(self) -> None:
        sys.stdout.flush()

    @property
    def encoding(self) -> str:
        return sys.stdout.encoding
