"""``spec-tui replay``: plays a recorded run on the screen or in words. Loads neither a model nor torch."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from engines.errors import UsageProblem
from engines.report.events import Started
from engines.report.run_state import RunState, fold, fold_all
from engines.report.traces import Trace
from engines.wire import read_trace
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Only, Presenter, Rejected, Theme, complete_trace
from spec_tui.cli.output import JsonOutput, NarratedOutput, console, remark, table
from spec_tui.present.narration import question
from spec_tui.present.text import one_line
from spec_tui.session.replay_client import ReplayClient
from spec_tui.session.sample_traces import names, trace_path

_OF_TRACE = Only(lambda given: bool(given["traces"]), "a trace that is named")
_OF_SCREEN = Only(lambda given: given["format"] == "screen", "--format screen")
_OF_PLAYED = Only(lambda given: given["format"] != "json", "what is played: --format screen or text")
_SLOWEST, _FASTEST = 0.001, 1000
_SPEED = "Speed: 1 is the speed of the run, 0.1 is ten times slower, inf shows everything at once."
_TRACE = "A trace (spec-tui run --trace writes one), or the name of one that ships. With --screen race: up to six, or \
a folder of compare --trace-dir. Without a name, those that ship are listed."
_SCREEN = "Screen of the application that opens; race shows several runs side by side."
_FORMAT = "screen: in the application; text: in sentences, round by round; json: like run --format json."


def replay(
    traces: Annotated[
        list[str] | None, Argument(metavar="FILE|NAME", help=_TRACE, autocompletion=complete_trace)
    ] = None,
    speed: Annotated[float | None, Option(metavar="X", help=_SPEED), _OF_TRACE, _OF_PLAYED] = None,
    screen: Annotated[Literal["chat", "step", "race"], Option(help=_SCREEN), _OF_TRACE, Only(
        lambda given: given["format"] == "screen" or given["screen"] == "race", "--format screen")] = "chat",
    format: Annotated[Literal["screen", "text", "json"], Option("--format", help=_FORMAT), _OF_TRACE] = "screen",
    theme: Annotated[Theme, _OF_TRACE, _OF_SCREEN] = None,
    presenter: Annotated[Presenter, _OF_TRACE, _OF_SCREEN] = False,
    rejected: Annotated[Rejected, _OF_TRACE, _OF_SCREEN] = False,
) -> int:
    """Play a recorded run, or with --screen race several side by side. No model is loaded.

    Damaged lines of the file are skipped and reported. With --format text and --speed, the sentences appear at that
    speed.
    """
    check_speed(1 if speed is None else speed, math.inf)
    if not traces:
        return _list()
    looks = {"theme": theme, "presenter": presenter, "rejected": rejected}
    if screen == "race":
        return _race(traces, speed, format, **looks)
    path = _only(traces)
    trace = runs_in(path, tell=format != "screen")
    if format == "screen":
        from spec_tui.cli.application import open_recorded
        from spec_tui.tui import recorded

        client = ReplayClient(trace, speed or 1.0, title=path.stem, path=traces[0])
        return open_recorded(lambda: recorded.replay(client, screen, **looks), "replay FILE --format text")
    _narrate(trace, speed or math.inf) if format == "text" else _summarise(trace)
    return 0


def check_speed(speed: float, *others: float) -> None:
    """Raises UsageProblem where a run would not move or a number is none; ``others`` are allowed too."""
    if not (_SLOWEST <= speed <= _FASTEST or speed in others):
        more = "".join(f", or {other:g}" for other in others)
        raise UsageProblem(f"the speed {speed:g} is out of range", f"--speed takes {_SLOWEST:g} to {_FASTEST:g}{more}")


def runs_in(path: Path, tell: bool) -> Trace:
    """The trace in a file; with ``tell``, what is damaged in it is named. Raises UsageProblem where it has no run."""
    trace = read_trace(path)
    if not trace.runs:
        raise UsageProblem(f"{path} contains no run", "traces are written by spec-tui run --trace FILE")
    for problem in trace.problems if tell else ():
        narrate(f"note: {problem}")
    return trace


def _race(traces: list[str], speed: float | None, format: str, **looks: Any) -> int:
    """Side by side, in the photo finish."""
    if format != "screen":
        raise UsageProblem(f"--screen race needs --format screen, not --format {format}",
                           f"leave one out: spec-tui replay FILE --format {format} reads one trace")
    from spec_tui.cli.application import open_recorded
    from spec_tui.session.recorded_race import read_recorded
    from spec_tui.tui import recorded

    race = read_recorded(traces)
    return open_recorded(lambda: recorded.race(race, speed, **looks), "replay FILE --format text, one by one")


def _only(traces: list[str]) -> Path:
    """The one trace. Raises UsageProblem where there are several, or a folder."""
    if len(traces) > 1:
        raise UsageProblem(f"these are {len(traces)} traces, and only --screen race shows several",
                           "name one, or add --screen race")
    path = trace_path(traces[0])
    if os.path.isdir(path):
        raise UsageProblem(f"{path} is a folder, and only --screen race opens one",
                           "name a trace in it, or add --screen race")
    return path


def _list() -> int:
    rows = []
    for name in names():
        run = fold_all(read_trace(trace_path(name)).events)
        length = run.metrics.mean_generated_length or 1.0
        made = f"{len(run.tokens):>3} tokens, {length:.2f} per verify step"
        rows.append((name, run.started.engine, made, one_line(question(run.started), 60)))
    console().print(table(rows))
    narrate("\nspec-tui replay NAME plays one.")
    return 0


def _narrate(trace: Trace, speed: float) -> None:
    output, client, run = NarratedOutput(), ReplayClient(trace, speed), RunState()
    while not client.over:
        due = client.events()
        for _, event in due:
            if isinstance(event, Started):
                if run.started is not None:
                    print()
                run = RunState()
            run = fold(run, event)
            output.show(event, run)
        if not due:
            time.sleep(0.01)


def _summarise(trace: Trace) -> None:
    """One object for each run, as ``run --format json`` writes it."""
    for run in map(fold_all, trace.runs):
        if run.started is not None:
            remark(run.started)
        JsonOutput(trace.problems).finish(run, audit=run.audited is not None)
