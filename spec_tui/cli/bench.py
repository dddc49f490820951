"""``spec-tui bench``: engines and ``transformers.generate`` over a suite of tasks."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from engines import methods
from engines.bench.bench_results import BenchResults
from engines.bench.entrants import able, facts, fitting
from engines.bench.hf_generate import generate_lanes
from engines.bench.suite import Suite
from engines.errors import ModelUnavailable, UsageProblem
from engines.race.lanes import Lane, Race
from engines.race.peers import Peers
from spec_tui.cli.compare import REPEATS, RaceFormat, RaceProgress, SingleLanes, ended, follow, named, tell_addresses
from spec_tui.cli.failures import LEFT_OUT, do_all, narrate, worst
from spec_tui.cli.option_groups import GenerationOptions, ModelOptions
from spec_tui.cli.prompts import comma_separated, read_prompts
from spec_tui.cli.run import load_decoder
from spec_tui.export.bench_report import SCHEMA, Benchmark, plots, report
from spec_tui.export.report import WRITERS
from spec_tui.export.results_folder import ResultsFolder
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from engines.request import Request
    from engines.runtime import Runtime
    from spec_tui.session.engine_commands import LoadRequest

_FILES = {"csv": "runs.csv", "md": "tables.md"}
_PLOTS = ("speed-ups.svg", "tasks.svg", "generate.svg")

_SUITE = ("File of questions, as JSON lines with prompt or turns, and category, as in Spec-Bench; or coding: twelve "
          "tasks that ship; - is stdin. Default: our own.")
_TASKS = "Only these tasks of the suite, for example code,edit."
_ENGINES = "Engines, with their options: pld,rest:c=16:n_max=8. Default: all. The baseline is always included."
_REPEATS = f"Number of times each engine answers all. Default: {REPEATS}; fewer have wider intervals; 1 with --suite."
_LIMIT = "Maximum number of questions of each task."
_PEERS = "Leave out transformers.generate."
_OUT = "Folder to write results.json, runs.csv, tables.md and plots to."
PAUSE = 15.0  # seconds between lines of progress in a pipe


def bench(
    suite: Annotated[Path | None, Option(metavar="FILE", help=_SUITE)] = None,
    task: Annotated[str, Option(metavar="LIST", help=_TASKS)] = "",
    engines: Annotated[str, Option(metavar="LIST", help=_ENGINES)] = "",
    engine: SingleLanes = None,
    repeats: Annotated[int | None, Option(metavar="N", help=_REPEATS)] = None,
    limit: Annotated[int | None, Option(metavar="N", help=_LIMIT)] = None,
    no_peers: Annotated[bool, Option("--no-peers", help=_PEERS)] = False,
    out: Annotated[Path | None, Option(metavar="DIR", help=_OUT)] = None,
    format: RaceFormat = RaceFormat.table,
    *,
    models: ModelOptions,
    generation: GenerationOptions,
) -> int:
    """Measure engines over a suite of tasks, and transformers.generate with the same methods.

    Like compare: engines run one after another on the same models, warmed up, each run with empty caches and nothing
    learned, in an order that keeps changing. Numbers are medians over the repeats, by task and overall. What cannot run
    is named and left out.
    """
    questions, request = _questions(suite, task, limit, generation.request())
    count = (REPEATS if suite is None else 1) if repeats is None else repeats
    wanted = named(engines, engine or [])
    lanes = _lanes(wanted)
    asked = Race(lanes, request, questions.prompts, count, audit=generation.audit)
    asked.check()
    folder = results_folder(out) if out is not None else None
    tell_addresses(lanes)
    with Peers(load_decoder(models.load)) as runner:
        asked, questions, left_out = enter(runner, asked, questions, models.load, not no_peers)
        for sentence in left_out:
            narrate(f"note: {sentence}")
        missing = any(lane not in asked.lanes for lane in wanted)
        return worst(_run(runner, asked, questions, left_out, folder, format), LEFT_OUT * missing)


def enter(
    runner: Peers, asked: Race, suite: Suite, load: LoadRequest, beside_generate: bool
) -> tuple[Race, Suite, list[str]]:
    """What takes part: a race of our lanes and those of generate, on the questions that fit; and what is left out.
    Raises SpecError where nothing can run."""
    suite, left_out = fitting(runner.host, suite, asked.request)
    first = ("user", suite.cases[0].turns[0])
    trial = replace(asked.request, conversation=(*asked.request.conversation, first))
    lanes, missing = able(runner, asked.lanes, trial)
    if not lanes:
        raise UsageProblem("no engine can run here", missing[0])
    left_out += missing
    if beside_generate and asked.request.temperature > 0:
        left_out.append("generate is left out: above temperature 0 it writes other texts, so speeds are not comparable")
    elif beside_generate:
        wanted = generate_lanes(lanes)
        narrate("loading the models once more, for transformers.generate")
        try:
            generator = load_generator(runner.host, any(lane.call.assisted for lane in wanted), load)
            runner.loaded = {lane.engine: generator for lane in wanted}
            found, problems = able(runner, wanted, trial)
        except ModelUnavailable as error:
            found, problems = (), [f"generate is left out: {error.message}"]
        lanes, left_out = (*lanes, *found), left_out + problems
    return replace(asked, lanes=lanes, prompts=suite.prompts), suite, left_out


def load_generator(decoder: Runtime, draft: bool, load: LoadRequest):
    """Who runs generate. Raises ModelUnavailable."""
    from engines.bench import generate_runs

    return generate_runs.Generator(*generate_runs.load(decoder.ready, decoder.target.dtype, draft, load), decoder)


def _run(
    runner: Peers, asked: Race, suite: Suite, left_out: list[str], folder: ResultsFolder | None,
    format: RaceFormat,
) -> int:
    """Run, write what there is, also of what was interrupted. Returns the exit code. Raises SpecError."""
    results = BenchResults(suite, lambda: runner.token_times)
    gc.collect()
    gc.freeze()  # what is loaded stays, so that collecting garbage before each run is quick
    follow(runner, asked, results, RaceProgress(asked, PAUSE))
    starts = (run.state.started for run in results.runs.values() if run.state.started)
    done = Benchmark(results, asked, facts(runner.host, starts), left_out)
    code = 0

    def write() -> None:
        if folder is not None and results.complete:
            narrate(f"wrote {', '.join(folder.write(report(done), *plots(done)))} into {one_line(str(folder.path))}")

    def tell() -> None:
        nonlocal code
        if text := WRITERS[format](report(done)):
            print(text, flush=True)
        code = ended(results, asked, results.own_bugs)

    do_all(write, tell)
    return code


def _questions(path: Path | None, tasks: str, limit: int | None, request: Request) -> tuple[Suite, Request]:
    """The suite that is asked for, and the request with its system prompt. Raises UsageProblem."""
    if limit is not None and limit < 1:
        raise UsageProblem(f"--limit {limit} is out of range", "it is at least 1")
    found, request = read_prompts(path, request)
    suite = found.suite.of_tasks(comma_separated(tasks, "--task"))
    return suite if limit is None else suite.limited(limit), request


def _lanes(lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    """The lanes that were named, all engines where none was; the baseline first where it is not among them."""
    if not lanes:
        specs = methods.specs()
        lanes = (*(Lane(spec.id) for spec in specs),
                 *(Lane(spec.id, dict(options)) for spec in specs for options in spec.variants))
    base = Lane(methods.baseline().id)
    return lanes if any(lane.engine == base.engine for lane in lanes) else (base, *lanes)


def results_folder(path: Path) -> ResultsFolder:
    """A folder to write a benchmark into. Raises UsageProblem."""
    return ResultsFolder(path, SCHEMA, _FILES, _PLOTS)
