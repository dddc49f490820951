"""What ``run`` writes: the answer to stdout, as text or as one JSON object, and the rest to stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from engines.report import encoding
from engines.report.events import Audited, Emitted, Failed, Finished, Loading, Prefilled, Round, Started
from engines.report.metrics import Metrics
from engines.wire import Event
from spec_tui.cli.failures import narrate
from spec_tui.present.ansi import FateStyle
from spec_tui.present.audit_words import sentence
from spec_tui.present.narration import REASONS, Narrator
from spec_tui.present.text import lossy, one_line, sanitise


@dataclass(slots=True)
class Record:
    """A run as it comes in; complete in itself at any moment, so that an interrupted run can be reported. ``audit``:
    one was asked for."""

    started: Started | None = None
    metrics: Metrics = field(default_factory=Metrics)
    tokens: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    end: Finished | Failed | None = None
    audit: bool = False
    audited: Audited | None = None

    @property
    def reason(self) -> str | None:
        """Why it ended, None if it did not."""
        return self.end.reason if isinstance(self.end, Finished) else None

    def add(self, event: Event) -> tuple[Emitted, ...]:
        """Take the next event; returns the tokens it brought."""
        self.metrics = self.metrics.add(event)
        new: tuple[Emitted, ...] = ()
        if isinstance(event, Started):
            self.started = event
            for warning in event.warnings:
                narrate(f"note: {warning}")
            if not event.lossless:
                narrate(f"LOSSY: the law {event.law} changes the target's distribution")
        elif isinstance(event, Prefilled):
            new = (event.first,)
        elif isinstance(event, Round):
            new = event.emitted
        elif isinstance(event, Finished | Failed):
            self.end = event
        elif isinstance(event, Audited):
            self.audited = event
        self.tokens += [token.token for token in new]
        self.texts += [token.text for token in new]
        return new

    def to_dict(self) -> dict[str, Any]:
        """The object of ``--format json``."""
        made = run_object(self.started, self.metrics, self.tokens, "".join(self.texts), self.reason)
        return made | ({"audit": encoding.plain(self.audited) if self.audited else None} if self.audit else {})

    def summary(self) -> str:
        """The numbers in three lines, for people."""
        m, name = self.metrics, self.started.engine if self.started else "run"
        speed = f", {m.tokens_per_second:.1f} tokens/s" if m.tokens_per_second is not None else ""
        length = f" ({m.mean_generated_length:.2f} tokens each)" if m.mean_generated_length is not None else ""
        rate = f" ({m.acceptance_rate:.0%})" if m.acceptance_rate is not None else ""
        return (
            f"{name}: {m.new_tokens} tokens{speed}, {REASONS.get(self.reason, 'unfinished')}\n"
            f"forwards {m.target_forwards}{length}, drafted {m.drafted}, accepted {m.accepted}{rate}\n"
            f"{self._break_even()}"
            f"seconds: prefill {m.prefill_seconds:.3f}, draft {m.draft_seconds:.3f},"
            f" verify {m.verify_seconds:.3f}, other {m.other_seconds:.3f}"
        ) + self._matches() + self._lossy()

    def _break_even(self) -> str:
        """The line that says whether drafting paid; nothing where nothing was drafted."""
        even = self.metrics.break_even
        if even is None or not self.metrics.drafted:
            return ""
        verdict = "pays" if even.pays else "does not pay"
        return f"{verdict}: a round needs {even.needs:.2f} tokens and makes {even.makes:.2f} (x{even.speed_up:.2f})\n"

    def _matches(self) -> str:
        """The line with how long the matches were, of retrieval by exact match."""
        lengths = ", ".join(f"{length}: {rounds}" for length, rounds in sorted(self.metrics.matches.items()))
        return f"\nrounds by matched length: {lengths}" if lengths else ""

    def _lossy(self) -> str:
        """The line that marks a run that is not lossless."""
        if self.started is None or self.started.lossless:
            return ""
        return f"\n{lossy(self.metrics.bias)}"


def run_object(
    started: Started, metrics: Metrics, tokens: Sequence[int], text: str, reason: str | None
) -> dict[str, Any]:
    """A run as ``--format json`` has it, without an audit."""
    return {
        **{name: getattr(started, name) for name in ("engine", "model", "dtype", "device", "law")},
        "lossless": started.lossless,
        "temperature": started.temperature,
        "seed": started.seed,
        "prompt_tokens": len(started.prompt),
        "tokens": list(tokens),
        "text": text,
        "finish_reason": reason,
        "stats": metrics.stats(),
    }


class Status:
    """A line on stderr that replaces itself and goes away; nothing where stderr is not a terminal."""

    def __init__(self) -> None:
        self.shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._downloading = False

    def __enter__(self) -> Status:
        self._write("loading ...")
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._write("")
        if kind is KeyboardInterrupt and self._downloading:
            narrate("what was downloaded stays: the same command goes on from there")

    def show(self, event: Loading) -> None:
        """Progress of loading. How large a download will be is said where nothing replaces it, in a pipe too."""
        self._downloading = event.bytes is not None
        if self._downloading and event.done is None:
            self._write("")
            narrate(one_line(event.stage))
            return
        done = "" if event.done is None else f" {event.done:.0%}"
        room = shutil.get_terminal_size().columns - len(done) - 5
        self._write(f"{one_line(event.stage, room)}{done} ...")

    def _write(self, text: str) -> None:
        if self.shown:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


class TextOutput:
    """Streams the answer: marked on a terminal, exact in a pipe."""

    def __init__(self) -> None:
        self._ink = FateStyle.of(sys.stdout, os.environ)
        self._open_line = False
        if self._ink.exact:
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        else:
            sys.stdout.reconfigure(errors="replace")

    def show(self, event: Event, tokens: tuple[Emitted, ...]) -> None:
        """What an event brought."""
        if not tokens:
            return
        sys.stdout.write(self._ink.text(tokens))
        sys.stdout.flush()
        written = "".join(token.text for token in tokens)
        self._open_line = not written.endswith("\n") if written else self._open_line

    def abandon(self) -> None:
        """No more text: what was written stays, and messages begin on a line of their own."""
        if self._open_line and sys.stdout.isatty():
            print(flush=True)
        self._open_line = False

    def finish(self, record: Record) -> None:
        self.abandon()
        ink = FateStyle.of(sys.stderr, os.environ)
        if self._ink.marks and ink.marks:
            print(f"\n{ink.legend()}", file=sys.stderr)
        narrate(record.summary())
        if record.audit:
            narrate("audit: " + (sentence(record.audited) if record.audited else "stopped before it found anything"))


class NarratedOutput:
    """Tells the run line by line, for those who hear the terminal."""

    def __init__(self) -> None:
        self._narrator = Narrator()
        sys.stdout.reconfigure(errors="replace")

    def show(self, event: Event, tokens: tuple[Emitted, ...]) -> None:
        for line in self._narrator.tell(event):
            print(sanitise(line), flush=True)

    def abandon(self) -> None:
        pass

    def finish(self, record: Record) -> None:
        if record.audit and record.audited is None:
            print("audit: stopped before it found anything", flush=True)


class JsonOutput:
    """One object at the end. Non-ASCII is escaped, so nothing in it can steer a terminal."""

    def show(self, event: Event, tokens: tuple[Emitted, ...]) -> None:
        pass

    def abandon(self) -> None:
        pass

    def finish(self, record: Record) -> None:
        if record.started is not None:
            print(json.dumps(record.to_dict()), flush=True)
