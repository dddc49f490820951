"""Runs as a recording of a terminal (asciicast v2), timed by the engine's clock: plays with asciinema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from engines.report.events import Emitted
from engines.report.run_state import MISSING, RunState
from engines.report.wording import seconds_of
from spec_tui.export import about
from spec_tui.present.ansi import FateStyle
from spec_tui.present.narration import question
from spec_tui.present.rejected import labels
from spec_tui.present.text import sanitise

_INK = FateStyle(marks=True, colour=True, exact=False)
_BEFORE, _AFTER = 1.0, 2.0  # seconds to read the prompt, and the numbers
_FAINT, _PLAIN = "\x1b[2m", "\x1b[0m"


def cast(runs: Sequence[RunState], width: int = 80, height: int = 24, speed: float = 1.0,
         rejected: bool = False, problems: Sequence[str] = ()) -> str:
    """Lines of JSON: a header, then (seconds, "o", what the terminal is sent). What models wrote cannot steer it.

    Args:
        width, height: of the terminal, in cells.
        speed: how many seconds of the engine pass in one.
        rejected: keep rejected draft tokens in the text, struck through.
        problems: of the trace; they are written first.
    """
    header = {"version": 2, "width": width, "height": height, "title": about.title(runs[0]) if runs else "spec-tui"}
    lines, clock = [json.dumps(header)], 0.0
    notes = "".join(f"{_FAINT}{sanitise(said)}{_PLAIN}\n" for said in about.notes(problems))
    for number, run in enumerate(runs):
        for wait, text in _written(run, speed, rejected, notes * (not number)):
            clock += wait
            lines.append(json.dumps([round(clock, 6), "o", text.replace("\n", "\r\n")]))
    return "\n".join(lines) + "\n"


def _written(run: RunState, speed: float, rejected: bool, notes: str) -> Iterator[tuple[float, str]]:
    """Seconds to wait, and what is written then."""
    if run.started is not None:
        yield 0.0, f"{notes}{_FAINT}{about.title(run)}{_PLAIN}\n\n> {sanitise(question(run.started))}\n\n"
    first: Sequence[Emitted] = (run.prefilled.first,) if run.prefilled is not None else ()
    prefill = run.prefilled.seconds if run.prefilled is not None else 0.0
    yield _BEFORE + prefill / speed, _INK.text(first)
    for index, event in enumerate(run.rounds):
        missing = MISSING * run.missing_before(index)
        yield seconds_of(event) / speed, missing + _INK.text(event.emitted, labels(event) if rejected else None)
    numbers = dict(about.outcome(run))
    said = [numbers[name] for name in ("speed", "accepted", "ended") if name in numbers]
    yield 0.0, f"\n\n{_INK.legend(rejected)}\n{_FAINT}{sanitise('; '.join(said))}{_PLAIN}\n"
    yield _AFTER, "\n"
