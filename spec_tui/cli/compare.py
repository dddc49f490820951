"""``spec-tui compare``: engines side by side on the same prompts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from engines import methods
from engines.errors import UsageProblem
from engines.race.lanes import Lane, Race, make_lane, parse_lane, parse_lanes
from engines.race.result import Result
from spec_tui.cli.options import EngineSettings, GenerationOptions, ModelOptions, PromptOptions, engine_settings
from spec_tui.cli.race_output import WRITERS
from spec_tui.cli.racing import REPEATS, ask, hold

_ENGINES = "Engines to compare, with options: autoregressive,pld,rest:c=16:n_max=8."
_LANE = "One engine, its values may hold commas: rest:datastore=notes,python-stdlib. Repeatable."
_REPEATS = f"How often each engine answers. Default: {REPEATS}, enough for a 95 % interval; 1 with --prompts."
_PROMPTS = "Lines of JSON with prompt, or with turns as Spec-Bench's questions have them."
_TRACES = "Write the trace of every run into this folder."
_FORMAT = "table for people; md; json and csv have every run."


class RaceFormat(StrEnum):
    """How a race is written."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


SingleLanes = Annotated[list[str] | None, Option(metavar="ID:OPTION=VALUE", help=_LANE)]
Repeats = Annotated[int | None, Option(metavar="N", help=_REPEATS)]
Prompts = Annotated[Path | None, Option(metavar="FILE", help=_PROMPTS)]
TraceDir = Annotated[Path | None, Option(metavar="DIR", help=_TRACES)]
RaceFormat = Annotated[RaceFormat, Option("--format", help=_FORMAT)]


def compare(
    prompt: PromptOptions,
    engines: Annotated[str, Option(metavar="LIST", help=_ENGINES)] = "",
    engine: SingleLanes = None,
    set_: EngineSettings = None,
    repeats: Repeats = None,
    prompts: Prompts = None,
    trace_dir: TraceDir = None,
    format: RaceFormat = RaceFormat.table,
    *,
    models: ModelOptions,
    generation: GenerationOptions,
) -> int:
    """Compare engines: speed, acceptance, and whether they write the same text.

    They run one after another on the same models, warmed up, each with empty caches, in an order that changes from
    repeat to repeat; numbers are medians. --set holds for all engines that have the option.
    """
    lanes = _lanes(engines, engine or [], engine_settings(set_))
    asked = ask(prompt, generation, lanes, prompts, repeats)
    return hold(models.load, asked, trace_dir, lambda result: write(result, asked, format))


def write(result: Result, asked: Race, format: RaceFormat) -> None:
    """Print a race; nothing where there is nothing to say."""
    if text := WRITERS[format](result, asked):
        print(text, flush=True)


def named(engines: str, single: list[str]) -> tuple[Lane, ...]:
    """The lanes of --engines and of each --engine. Raises UsageProblem."""
    return (parse_lanes([engines]) if engines else ()) + tuple(parse_lane(text) for text in single)


def _lanes(engines: str, single: list[str], common: dict[str, str]) -> tuple[Lane, ...]:
    """The lanes that the flags name. Raises UsageProblem."""
    lanes = named(engines, single)
    if len(lanes) < 2:
        raise UsageProblem(
            "there are not two engines to compare", "for example --engines autoregressive,pld,draft:shape=tree"
        )
    known = {lane.engine: {option.name for option in methods.find(lane.engine).options} for lane in lanes}
    for name in common:
        if not any(name in names for names in known.values()):
            raise UsageProblem(f"none of these engines has an option {name!r}", "see spec-tui engines")
    return tuple(
        make_lane(lane.engine, {n: v for n, v in common.items() if n in known[lane.engine]} | lane.given())
        for lane in lanes
    )
