"""``spec-tui reproduce``: papers' tables on the loaded model, with the published numbers beside ours."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from engines.bench.bench_results import BenchResults
from engines.bench.entrants import able, facts, fitting
from engines.errors import SpecError, UsageProblem
from engines.heads.head_config import EAGLE_HEAD
from engines.hub.known_models import KNOWN
from engines.race.lanes import Lane, Race
from engines.race.peers import Peers
from spec_tui.cli.bench import PAUSE
from spec_tui.cli.compare import RaceFormat, RaceProgress, ended, follow
from spec_tui.cli.failures import INTERRUPTED, LEFT_OUT, do_all, narrate, tell_failure, worst
from spec_tui.cli.option_groups import Alone, ModelOptions, Only
from spec_tui.cli.output import console, table
from spec_tui.cli.run import load_decoder
from spec_tui.cli.status_line import StageProgress
from spec_tui.present.progress_text import estimate_parts
from spec_tui.present.text import as_json, one_line

if TYPE_CHECKING:
    from engines.bench.suite import Suite
    from engines.datastores.storage.datastore import Store
    from engines.model.load_options import LoadOptions
    from engines.reproduce.entry import PaperEntry, Setting
    from engines.reproduce.reproduction import Reproduction
    from engines.runtime import Runtime
    from spec_tui.export.plots import Plot
    from spec_tui.export.report import Report
    from spec_tui.export.results_folder import ResultsFolder

_FILES, _PLOTS = {"csv": "cells.csv", "md": "tables.md"}, ("table.svg",)

_QUICK_WARM_UP = 4  # tokens
_TRIAL = (("user", "Hello"),)

_NAMES = "Entries, or your own files ending in .toml."
_LIST = "List the entries, and those that cannot be run here."
_QUICK = "Few prompts, short answers, small datastores: at most two minutes each."
_REPEATS = "Number of times each row answers all. Default: the entry's. Counts need one, speeds need more."
_LIMIT = "Maximum number of questions of each task. Default: the entry's."
_TOKENS = "Maximum length of the answers, in tokens. Default: the entry's."
_OUT = "Folder to write to: for each entry a folder with results.json, cells.csv, tables.md and table.svg."
_OF_TABLES = Only(lambda given: not given["list_"] or given["format"] is RaceFormat.json,
                  "tables; the list is written as text or json")


def complete_entry() -> list[str]:
    """The entries, for the shell."""
    from engines.reproduce.entry import shipped

    return [*shipped()]


def reproduce(
    names: Annotated[list[str] | None, Argument(
        metavar="NAME", help=_NAMES, autocompletion=complete_entry)] = None,
    list_: Annotated[bool, Option("--list", help=_LIST), Alone(frozenset({"format"}))] = False,
    all_: Annotated[bool, Option("--all", help="Run all entries that can be run.")] = False,
    quick: Annotated[bool, Option("--quick", help=_QUICK)] = False,
    repeats: Annotated[int | None, Option(metavar="N", help=_REPEATS, min=1, max=100)] = None,
    limit: Annotated[int | None, Option(metavar="N", help=_LIMIT, min=1)] = None,
    max_new_tokens: Annotated[int | None, Option(metavar="N", help=_TOKENS, min=2, max=4096)] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help=_OUT)] = None,
    format: Annotated[RaceFormat, _OF_TABLES] = RaceFormat.table,
    *,
    models: ModelOptions,
) -> int:
    """Run a table of a paper on your model, and show the published numbers next to ours.

    It runs like bench, with the published sizes. Datastores that a table needs are built first, and kept. ctrl+c keeps
    what is done, and the same command continues.
    """
    from spec_tui.export.report import WRITERS
    from spec_tui.export.reproduce_report import SCHEMA, plot, report, unable
    from spec_tui.export.results_folder import ResultsFolder

    if list_:
        _list(format)
        return 0
    wanted = _wanted(names or [], all_)
    end = "\n" if len(wanted) == 1 else "\n\n"
    runnable, codes = [(name, entry) for name, entry in wanted if not entry.cannot], []
    for name, entry in wanted:
        if entry.cannot:
            print(WRITERS[format](unable(name, entry)), end=end)
            codes.append(LEFT_OUT)
    folders = {name: ResultsFolder(out / name, SCHEMA, _FILES, _PLOTS) for name, _ in runnable if out is not None}

    def show(done: Reproduction) -> None:
        found = report(done)
        do_all(partial(print, WRITERS[format](found), end=end, flush=True),
               partial(_keep, folders.get(done.name), found, plot(done)))

    decoders = Decoders()
    for name, entry in sorted(runnable, key=lambda found: (_model(found[1]), found[1].head)):
        asked = models.load
        load = replace(asked, model=asked.model or _model(entry) or None, head=asked.head or entry.head.lower() or None)
        if len(runnable) > 1:
            narrate(f"{name}: {entry.title}")
        small = (entry.made_quick() if quick else entry).with_sizes(repeats, limit, max_new_tokens)
        codes.append(_run_entry(
            partial(decoders.load, load, asked.head is not None), name, small, quick, show, others=len(runnable) > 1))
        if codes[-1] == INTERRUPTED:
            break
    return worst(*codes)


class Decoders:
    """The models of one entry after another: what is loaded last is kept, and gone before others are loaded."""

    def __init__(self) -> None:
        self._runtime: Runtime | None = None
        self._asked: LoadOptions | None = None

    def load(self, asked: LoadOptions, keeps_head: bool) -> Runtime:
        """What is asked for, loaded if it is not the one kept. Raises SpecError."""
        if self._runtime is None or asked != self._asked:
            self._runtime = None
            gc.unfreeze()
            gc.collect()
            self._runtime, self._asked = load_decoder(asked, keeps_head), asked
            gc.collect()
            gc.freeze()  # what is loaded stays, so that collecting garbage before each run is quick
        return self._runtime


def _run_entry(
    load: Callable[[], Runtime], name: str, entry: PaperEntry, quick: bool, show: Callable[[Reproduction], None],
    others: bool,
) -> int:
    """Load and run an entry, and show what comes of it. Returns the exit code; where there are ``others``, a failure is
    told, and they continue. Raises SpecError where there are none. Nothing of the run outlives this call, so that its
    models make room for the next ones."""
    code = 0
    try:
        run = EntryRun(load(), name, entry, quick)
        code = run.run()
        if code != INTERRUPTED or any(setting.results.complete for setting in run.done.runs):
            code = worst(code, run.measure())
            show(run.done)
    except SpecError as error:
        if not others:
            raise
        tell_failure(f"{name}: {error.message}", error.hint)
        code = worst(code, error.exit_code)
    return code


def _keep(folder: ResultsFolder | None, found: Report, drawn: Plot | None) -> None:
    """Write a report to its folder, where one is asked for. Raises RunFailed."""
    if folder is not None:
        narrate(f"wrote {', '.join(folder.write(found, drawn))} into {one_line(str(folder.path))}")


def _model(entry: PaperEntry) -> str:
    """The model that an entry runs on where none is named: its own, where that is here; "" for the default."""
    known = KNOWN.get(entry.model)
    return known.name if known is not None and known.present else ""


def _wanted(names: list[str], all_: bool) -> list[tuple[str, PaperEntry]]:
    """The entries that are asked for, each once. Raises UsageProblem."""
    from engines.reproduce.entry import find

    if all_ and names:
        raise UsageProblem("give either --all or names of entries", "give one of them")
    if not all_ and not names:
        raise UsageProblem("no entry was named", "spec-tui reproduce --list names them; --all runs all")
    if all_:
        return [(name, entry) for name, entry in _shipped() if not entry.cannot]
    return [find(name) for name in dict.fromkeys(names)]


def _shipped() -> list[tuple[str, PaperEntry]]:
    from engines.reproduce.entry import shipped

    return list(shipped().items())


def _list(format: RaceFormat) -> None:
    """What there is to reproduce."""
    if format is RaceFormat.json:
        print(as_json([
            {"name": name, "paper": entry.paper, "tables": list(entry.tables), "title": entry.title,
             "cannot": entry.cannot or None} for name, entry in _shipped()
        ], indent=2))
        return
    console().print(table([("name", "of", "shows"), *(
        (name, f"{entry.paper.split(' (')[0]} {', '.join(entry.tables)}",
         f"not here: {entry.title}" if entry.cannot else entry.title) for name, entry in _shipped())]))


class EntryRun:
    """An entry on its way; ``done`` is what has come of it."""

    def __init__(self, runtime: Runtime, name: str, entry: PaperEntry, quick: bool) -> None:
        from engines.reproduce.questions import asked_of
        from engines.reproduce.reproduction import Reproduction

        head = runtime.heads.get(EAGLE_HEAD)
        entry = entry if head is None else entry.drafted_by(head.config.family)
        self._runtime = runtime
        self._able: tuple[Lane, ...] | None = None  # those that can run, tried once
        self._suites: dict[str, Suite] = {s.name: asked_of(entry.asked_in(s)) for s in entry.settings}
        self.done: Reproduction = Reproduction(name, entry, quick)

    def run(self) -> int:
        """Build what it needs, then run it in each setting. Returns the exit code. Raises SpecError."""
        entry, done = self.done.entry, self.done
        done.facts = facts(self._runtime, ())
        done.sublayers = cache(self._sublayers)
        try:
            done.stores = self._stores()
        except KeyboardInterrupt:
            narrate("\nspec-tui: interrupted; what was built is kept, and the same command continues")
            return INTERRUPTED
        code = 0
        for setting in entry.settings if any(row.lane for row in entry.rows) else ():
            code = worst(code, self._race(setting))
            if code == INTERRUPTED:
                break
        starts = (r.state.started for run in done.runs for r in run.results.runs.values() if r.state.started)
        done.facts = facts(self._runtime, starts)
        return code

    def measure(self) -> int:
        """Compute the cells. Returns the exit code: an interruption or a failure, which is told, leaves those that are
        done."""
        try:
            self.done.measure()
        except SpecError as error:
            tell_failure(f"{self.done.name}: {error.message}", error.hint)
            return error.exit_code
        except KeyboardInterrupt:
            narrate("\nspec-tui: interrupted; numbers that were not computed yet are missing")
            return INTERRUPTED
        return 0

    def _stores(self) -> dict[str, list[Store]]:
        from engines.reproduce.needs import DatastoreBuilder

        entry = self.done.entry
        builder = DatastoreBuilder(self._runtime, entry.stores, entry.quick.store_tokens if self.done.quick else None)
        prepared = builder.prepared()
        for each in prepared:
            if each.missing:
                words = ", ".join(estimate_parts(each.estimate))
                narrate(f"datastore {each.need.name} is built once and kept, as {each.name}: {words}")
        found = {}
        for each in prepared:
            with StageProgress() as progress:
                found[each.need.name] = [builder.build(each, progress.show)]
        return found

    def _race(self, setting: Setting) -> int:
        """One setting. Returns the exit code."""
        from engines.reproduce.entry import request_of
        from engines.reproduce.reproduction import SettingRun

        entry, done = self.done.entry, self.done
        request, by_row = request_of(entry, setting), self.done.lanes()
        with Peers(self._runtime) as runner:
            suite, left_out = fitting(self._runtime, self._suites[setting.name], request)
            if self._able is None:
                self._able, missing = able(runner, tuple(by_row.values()), replace(request, conversation=_TRIAL))
                left_out += missing
            for sentence in left_out:
                if sentence not in done.left_out:
                    narrate(f"note: {sentence}")
                    done.left_out.append(sentence)
            if not self._able:
                raise UsageProblem("none of its rows can run here", done.left_out[-1])
            lanes = self._able
            asked = Race(lanes, request, suite.prompts, entry.repeats, warm_up=_QUICK_WARM_UP if done.quick else None)
            asked.check()
            results = BenchResults(suite, lambda: runner.token_times)
            numbers = {row: lanes.index(lane) for row, lane in by_row.items() if lane in lanes}
            done.runs.append(SettingRun(setting, asked, results, numbers))
            follow(runner, asked, results, RaceProgress(asked, PAUSE))
            return worst(ended(results, asked, results.own_bugs), LEFT_OUT * (len(lanes) < len(by_row)))

    def _sublayers(self):
        from engines.reproduce.sublayer_facts import measure_sublayers
        from engines.request import Request

        prompts = [case.turns[0] for suite in self._suites.values() for case in suite.cases]
        return measure_sublayers(self._runtime, prompts, Request(()))
