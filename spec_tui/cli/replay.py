"""``spec-tui replay``: a recorded run again, on the screen or told in words. No model is loaded, and no torch."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated

from typer import Argument, Option

from engines.errors import UsageProblem
from engines.events import Audited, Event
from spec_tui.cli.errors import narrate
from spec_tui.cli.options import complete_trace
from spec_tui.cli.output import JsonOutput, Record
from spec_tui.narration import Narrator, question
from spec_tui.session.replay import Player
from spec_tui.session.shipped import names, trace_path
from spec_tui.session.state import fold_all
from spec_tui.session.trace import Trace, read_trace
from spec_tui.text import one_line, sanitise


class Screen(StrEnum):
    """Where a replay begins."""

    chat = "chat"
    step = "step"


class Form(StrEnum):
    """How a replay is shown."""

    screen = "screen"
    text = "text"
    json = "json"


_SPEED = "How fast it plays: 1 as it was, 0.1 ten times as slow, inf all at once."
_TRACE = "A trace that spec-tui run --trace wrote, or the name of one that ships. Without: lists those."
_SCREEN = "Which screen of the application plays it."
_FORMAT = "screen: the application; text: told round by round; json: as run --format json."


def replay(
    trace: Annotated[str | None, Argument(metavar="FILE|NAME", help=_TRACE, autocompletion=complete_trace)] = None,
    speed: Annotated[float | None, Option(metavar="X", help=_SPEED)] = None,
    screen: Annotated[Screen, Option(help=_SCREEN)] = Screen.chat,
    format: Annotated[Form, Option("--format", help=_FORMAT)] = Form.screen,
    theme: Annotated[str | None, Option(metavar="NAME", help="Colours of the application.")] = None,
    presenter: Annotated[bool, Option("--presenter", help="Step large, for a projector.")] = False,
) -> Callable[[], int]:
    """Play a recorded run. No model is loaded.

    What is damaged in the file is left out and named. With --format text and --speed, the lines come at that pace.
    """

    def execute() -> int:
        if speed is not None and not speed > 0:
            raise UsageProblem(f"the speed {speed:g} is out of range", "for example --speed 0.1, or --speed inf")
        if trace is None:
            return _list()
        path = trace_path(trace)
        recorded = read_trace(path)
        if not recorded.runs:
            raise UsageProblem(f"{path} holds no run", "traces are written by spec-tui run --trace FILE")
        if format is Form.screen:
            from spec_tui.cli.application import open_replay

            return open_replay(recorded, path.stem, speed or 1.0, screen.value, theme, presenter)
        for problem in recorded.problems:
            narrate(f"note: {problem}")
        _narrate(recorded, speed or math.inf) if format is Form.text else _summarise(recorded)
        return 0

    return execute


def _list() -> int:
    """The traces that ship, one a line."""
    width = max((len(name) for name in names()), default=0)
    for name in names():
        run = fold_all(read_trace(trace_path(name)).events)
        length = run.metrics.mean_generated_length or 1.0
        asked = one_line(question(run.started), 60)
        made = f"{len(run.tokens):>3} tokens, {length:.2f} a forward"
        print(f"{name:<{width}}  {run.started.engine:<14}  {made}  {asked}")
    narrate("\nspec-tui replay NAME plays one.")
    return 0


def _narrate(trace: Trace, speed: float) -> None:
    narrator = Narrator()
    sys.stdout.reconfigure(errors="replace")
    for number, run in enumerate(trace.runs):
        if number:
            print()
        for event in _paced(run, speed):
            for line in narrator.tell(event):
                print(sanitise(line), flush=True)


def _paced(run: tuple[Event, ...], speed: float) -> Iterator[Event]:
    """The events of a run, each at its time."""
    player = Player(run, speed)
    while not player.over:
        due = player.due()
        yield from due
        if not due:
            time.sleep(0.01)


def _summarise(trace: Trace) -> None:
    """One object for each run, as ``run --format json`` writes it."""
    for run in trace.runs:
        record = Record(audit=any(isinstance(event, Audited) for event in run))
        for event in run:
            record.add(event)
        JsonOutput().finish(record)
