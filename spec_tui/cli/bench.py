"""``spec-tui bench``: engines and ``transformers.generate`` over a suite of tasks."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from engines import methods
from engines.bench.bench_facts import facts
from engines.bench.bench_results import BenchResults
from engines.bench.bench_runner import BenchDecoder, BenchRunner, able, fitting
from engines.bench.hf_generate import peers_of
from engines.bench.suite import Suite, parse, shipped
from engines.errors import ModelUnavailable, SpecError, UsageProblem
from engines.hub.model_files import TrustPolicy
from engines.race.lanes import Lane, Race, parse_lanes
from engines.request import Request
from spec_tui.cli.bench_folder import Folder
from spec_tui.cli.bench_output import WRITERS, Report
from spec_tui.cli.compare import RaceFormat, SingleLanes, named
from spec_tui.cli.failures import narrate
from spec_tui.cli.options import GenerationOptions, ModelOptions
from spec_tui.cli.prompts import read_text
from spec_tui.cli.racing import REPEATS, RaceProgress, ended, follow
from spec_tui.cli.run import load_decoder

if TYPE_CHECKING:
    from spec_tui.session.client import LoadRequest

_SUITE = "Lines of JSON with prompt or turns, and category; Spec-Bench's questions are. Default: our own."
_ENGINES = "Engines, with options: pld,rest:c=16:n_max=8. Default: all. The baseline takes part in any case."
_REPEATS = f"How often each engine answers everything. Default: {REPEATS}, enough for 95 % intervals; 1 with --suite."
_LIMIT = "At most so many questions of each task."
_PEERS = "Leave transformers.generate out."
_OUT = "Write results.json, runs.csv, tables.md and plots into this folder."
_PAUSE = 15.0  # seconds between lines of progress in a pipe


def bench(
    suite: Annotated[Path | None, Option(metavar="FILE", help=_SUITE)] = None,
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
    """Measure engines over a suite of tasks, beside transformers.generate with the same method.

    As compare does: one after another on the same models, warmed up, each run with empty caches and nothing learned,
    in an order that changes all the time. Numbers are medians over the repeats, by task and overall.
    """
    questions = _questions(suite, limit)
    count = (REPEATS if suite is None else 1) if repeats is None else repeats
    lanes, request = _lanes(engines, engine or []), generation.request()
    asked = Race(lanes, request, questions.prompts, count, audit=generation.audit)
    asked.check()
    folder = Folder(out) if out is not None else None
    decoder = load_decoder(models.load)
    entry = enter(decoder, asked, questions, models.load, not no_peers)
    return _hold(entry, folder, format)


@dataclass
class BenchEntry:
    """What takes part: a race of our lanes and their peers on the questions that fit, and what was left out."""

    contest: BenchRunner
    asked: Race
    suite: Suite
    said: list[str] = field(default_factory=list)


def enter(decoder: BenchDecoder, asked: Race, suite: Suite, load: LoadRequest, peers: bool) -> BenchEntry:
    """Find out what can take part. Raises SpecError where nothing can."""
    contest = BenchRunner(decoder)
    suite, said = fitting(contest, suite, asked.request)
    first = ("user", suite.cases[0].turns[0])
    trial = replace(asked.request, conversation=(*asked.request.conversation, first))
    lanes, missing = able(contest, asked.lanes, trial)
    if not lanes:
        raise UsageProblem("no engine can run here", missing[0])
    said += missing
    if peers and asked.request.temperature > 0:
        said.append("generate is left out: above temperature 0 its texts, and so its work, are not ours")
    elif peers:
        found, problems = _peers(contest, lanes, trial, load)
        lanes, said = (*lanes, *found), said + problems
    return BenchEntry(contest, replace(asked, lanes=lanes, prompts=suite.prompts), suite, said)


def _peers(
    contest: BenchRunner, lanes: tuple[Lane, ...], trial: Request, load: LoadRequest
) -> tuple[tuple[Lane, ...], list[str]]:
    """Load plain models for generate; its lanes, and what of them is left out."""
    wanted = peers_of(lanes)
    narrate("loading the models once more, for transformers.generate")
    try:
        contest.others = others(contest.decoder, any(peer.method.engine == "draft" for peer in wanted), load)
    except ModelUnavailable as error:
        return (), [f"generate is left out: {error.message}"]
    return able(contest, wanted, trial)


def others(decoder: BenchDecoder, draft: bool, load: LoadRequest):
    """Who runs generate. Raises ModelUnavailable."""
    from engines.bench import generate_runs as generate

    terms = TrustPolicy(load.allow_pickle, load.trust_remote_code)
    models = generate.load(decoder.ready, draft, load.revision, load.draft_revision, terms)
    return generate.Generator(*models, decoder)


def _hold(entry: BenchEntry, folder: Folder | None, format: RaceFormat) -> int:
    """Run, write what there is, also of what was interrupted. Returns the exit code. Raises SpecError."""
    contest, asked = entry.contest, entry.asked
    standings = BenchResults(entry.suite, lambda: contest.pace)
    for sentence in entry.said:
        narrate(f"note: {sentence}")
    gc.collect()
    gc.freeze()  # what is loaded stays, so that sweeping up before each run is quick
    follow(contest, asked, standings, RaceProgress(asked, _PAUSE))
    report = Report(standings, asked, facts(contest, standings), entry.said)
    problem = None
    if folder is not None and standings.complete:
        try:
            folder.write(report)
        except SpecError as error:  # the numbers are worth having without files
            problem = error
    if text := WRITERS[format](report):
        print(text, flush=True)
    code = ended(standings, asked, standings.own_bugs)
    if problem is not None:
        raise problem
    return code


def _questions(path: Path | None, limit: int | None) -> Suite:
    """The suite that is asked for. Raises UsageProblem."""
    if limit is not None and limit < 1:
        raise UsageProblem(f"--limit {limit} is out of range", "it is at least 1")
    suite = shipped() if path is None else parse(read_text(path, "--suite"), str(path), path.name)
    return suite if limit is None else suite.limited(limit)


def _lanes(engines: str, single: list[str]) -> tuple[Lane, ...]:
    """The lanes that the flags name, all engines where they name none; the baseline first where it is not among them.
    Raises UsageProblem."""
    lanes = named(engines, single)
    if not lanes:
        lanes = (*(Lane(spec.id) for spec in methods.specs()), *parse_lanes(["draft:shape=tree"]))
    base = Lane("autoregressive")
    return lanes if any(lane.engine == base.engine for lane in lanes) else (base, *lanes)
