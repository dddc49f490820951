"""``spec-tui sweep``: one option of an engine against speed and acceptance."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

from typer import Option

from engines import methods
from engines.errors import UsageProblem
from engines.race.lanes import MODEL, STORES, Lane, Race, make_lane
from engines.race.result import RaceResult
from spec_tui.cli.compare import Prompts, RaceFormat, Repeats, TraceDir, checked_race, run_race, write
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import EngineSettings, GenerationOptions, ModelOptions, PromptOptions, engine_settings
from spec_tui.cli.prompts import comma_separated
from spec_tui.present.rows import bar
from spec_tui.present.text import cells, in_column

_VARY = "The option and its values: c=8,16,32,64. datastore=... varies the datastores, model=... the draft model."


def sweep(
    prompt: PromptOptions,
    engine: Annotated[str, Option(metavar="ID", help="The engine; spec-tui engines lists them.")] = "",
    vary: Annotated[str, Option(metavar="OPTION=V,V,...", help=_VARY)] = "",
    set_: EngineSettings = None,
    repeats: Repeats = None,
    prompts: Prompts = None,
    trace_dir: TraceDir = None,
    format: RaceFormat = RaceFormat.table,
    *,
    models: ModelOptions,
    generation: GenerationOptions,
) -> int:
    """Plot tokens/s and acceptance over one option of an engine.

    Each value is a separate lane, measured like compare, next to autoregressive decoding.
    """
    option, lanes = _lanes(engine, vary, engine_settings(set_))
    asked = checked_race(prompt, generation, lanes, prompts, repeats)
    _remark(option, lanes[-1])

    def show(result: RaceResult, asked: Race) -> None:
        if format in (RaceFormat.table, RaceFormat.md) and result.complete:
            drawn = plot(result, asked, option)
            print(drawn if format is RaceFormat.table else f"```text\n{drawn}\n```", end="\n\n")
        write(result, asked, format)

    return run_race(models.load, asked, trace_dir, show)


def _lanes(engine: str, vary: str, common: dict[str, str]) -> tuple[str, tuple[Lane, ...]]:
    """The option's name, and the lanes: the baseline, then the values in order. Raises UsageProblem."""
    if not engine:
        raise UsageProblem("there is no engine to vary", "for example --engine rest --vary c=8,16,32,64")
    name, _, values = vary.partition("=")
    name = name.strip()
    varied = list(dict.fromkeys(comma_separated(values, "--vary")))
    if not name or not varied:
        known = ", ".join(option.name for option in methods.find(engine).options) or "none"
        raise UsageProblem(f"--vary {vary} is not OPTION=VALUE,VALUE" if vary else "--vary is missing",
                           f"for example --vary c=8,16,32,64; options of {engine}: {known}")
    if name in common:
        raise UsageProblem(f"{name} is both varied and --set", "give it once")
    return name, (Lane(methods.baseline().id), *(make_lane(engine, {**common, name: value}) for value in varied))


def _remark(option: str, lane: Lane) -> None:
    """A budget hides what sizes do."""
    known = {o.name: o for o in methods.find(lane.engine).options}
    sizes = option in known and known[option].type == "int"
    if sizes and "budget" in known and lane.options.get("budget", "auto") == "auto":
        narrate("note: budget=auto drafts fewer tokens where that is faster; --set budget=paper never does")


def plot(result: RaceResult, asked: Race, option: str) -> str:
    """A bar of tokens/s and one of acceptance for each value; both begin at 0, acceptance ends at 100%."""
    figures = result.figures()
    names = [_value(lane, option) for lane in asked.lanes]
    width = min(max(map(cells, names), default=0), 24)
    rates = [f.rate.median if f.rate else 0.0 for f in figures]
    room = max(20, min(shutil.get_terminal_size().columns, 120) - width - 20)
    long, short = room * 2 // 3, room // 3
    engine = asked.lanes[-1].engine
    lines = [f"{engine}: tokens/s by {option}, and acceptance (a full bar is 100%)"]
    for name, f, rate in zip(names, figures, rates):
        share = f.metrics.acceptance_rate
        speed = _bar(rate / max(rates) if max(rates) else 0.0, long)
        accepted = f"{_bar(share, short)} {share:>4.0%}" if share is not None else ""
        number = f"{rate:>7.1f}" if f.rate else f"{'-':>7}"
        lines.append(f"{in_column(name, width + 1)} {speed} {number}  {accepted}".rstrip())
    return "\n".join(lines)


def _value(lane: Lane, option: str) -> str:
    """The lane's name on the axis."""
    value = lane.given().get(option)
    return lane.label if value is None else f"{option}={value}" if option not in (STORES, MODEL) else str(value)


def _bar(share: float, width: int) -> str:
    """A bar of a share of ``width`` columns, padded to it; whole columns where the output has no eighths."""
    drawn = bar(share, width)
    try:
        drawn.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        drawn = "#" * round(min(1.0, max(0.0, share)) * width)
    return drawn.ljust(width)
