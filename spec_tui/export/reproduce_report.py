"""What a reproduced table has to report: ours beside theirs, and what differs from the paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from engines.bench.published import Figure
from engines.race.interval import MedianInterval
from engines.race.result import LaneRun
from engines.report import encoding
from engines.report.wording import counted
from engines.reproduce.entry import PaperEntry
from engines.reproduce.measures import MEASURES, described
from engines.reproduce.questions import asked_of
from engines.reproduce.reproduction import Cell, ClaimVerdict, Reproduction, SettingRun, theirs
from spec_tui.export.bench_report import Benchmark, setting_words, without_folders
from spec_tui.export.bench_report import rows as run_rows
from spec_tui.export.plots import Bar, BarRow, Plot
from spec_tui.export.report import Report
from spec_tui.present.race_text import disturbance_sentence, interval_meaning
from spec_tui.present.tables import Rows, interval, or_dash

SCHEMA = "spec-tui reproduce 1"
NO_CELLS = (
    "entry", "setting", "row", "measure", "here", "low", "high", "theirs", "model", "data", "hardware", "source",
)
_TOTALS = ("drafting_rounds", "lookups", "lookup_seconds", "depth_tried", "depth_accepted")


def report(done: Reproduction) -> Report:
    """All there is to say, with every run; a row for each number of theirs beside ours."""
    return Report(title=f"{done.name}: {done.entry.title}", tables=_tables(done), notes=notes(done),
                  labels=[row.name for row in done.entry.rows], data=lambda: as_object(done),
                  rows=lambda: cell_rows(done), columns=NO_CELLS)


def _tables(done: Reproduction) -> list[Rows]:
    """A table for each setting: by measure ours with its interval, then theirs; columns where nobody has a number are
    left out."""
    cells, papers = done.cells(), _papers(done.cells())
    found = []
    for setting in dict.fromkeys(cell.setting for cell in cells):
        here = [cell for cell in cells if cell.setting == setting]
        rows: Rows = [[setting], *([row.name] for row in done.entry.rows)]
        for measure in done.entry.measures:
            column = [cell for cell in here if cell.measure == measure]
            shown = [paper for paper in papers if any(paper in map(_paper, c.theirs) for c in column)]
            if not shown and all(cell.here is None for cell in column):
                continue
            write, digits = MEASURES[measure].write, MEASURES[measure].digits
            known = any(cell.interval is not None and cell.interval.samples > 1 for cell in column)
            rows[0] += [measure, *["interval"] * known, *(f"[{papers.index(paper) + 1}]" for paper in shown)]
            for row, cell in zip(rows[1:], column):
                row += [write(cell.here), *[interval(cell.interval, digits)] * known,
                        *(write(_of(cell, paper)) for paper in shown)]
        found.append(rows)
    return found


def _papers(cells: Iterable[Cell]) -> list[str]:
    return list(dict.fromkeys(_paper(figure) for cell in cells for figure in cell.theirs))


def _paper(figure: Figure) -> str:
    """A column of theirs: on what it was measured, and where it is published."""
    return f"{figure.model} on {figure.data}, {figure.where}"


def _of(cell: Cell, paper: str) -> float | None:
    return next((figure.value for figure in cell.theirs if _paper(figure) == paper), None)


def notes(done: Reproduction) -> list[str]:
    """What it shows, whose numbers are whose, what differs, what holds, what limits it."""
    entry = done.entry
    papers = _papers(done.cells())
    said = [f"{_words(entry.sources)}: {entry.title}", entry.shows]
    said += [f"[{n}] published: {paper}" for n, paper in enumerate(papers, 1)]
    said += [_claimed(verdict) for verdict in done.verdicts()]
    said += [f"not as in the paper: {difference}" for difference in differences(done)]
    said += [*_setting(done), *done.left_out, *_stores(done)]
    said += described(entry.measures)
    if estimates := [cell.interval for cell in done.cells() if cell.interval is not None]:
        said.append(interval_meaning(estimates))
    if any(column.timed for column in entry.columns):
        said += [f"{run.setting.name}: " * (len(done.runs) > 1) + sentence for run in done.runs
                 if (sentence := disturbance_sentence(run.results.disturbance()))]
    return [sentence for sentence in said if sentence]


def _claimed(verdict: ClaimVerdict) -> str:
    claim, write = verdict.claim, MEASURES[verdict.claim.measure].write
    order = " < ".join(f"{row} {write(value)}" for row, value in zip(claim.rising, verdict.values))
    if claim.above is not None:
        order = f"{write(claim.above)} < {order}"
    found = {True: "holds here", False: "does not hold here", None: "cannot be told here"}[verdict.holds]
    if verdict.equal:
        found = "cannot be told here, where all are equal"
    elif verdict.holds is None and verdict.repeats:
        within = f": it is within the noise of {verdict.repeats} repeats"
        found += " from a single repeat" if verdict.repeats == 1 else within
    return f"claim, {verdict.setting}: {claim.says} It {found}. Expected order of {claim.measure}: {order}"


def differences(done: Reproduction) -> list[str]:
    """What is not as in the paper, the model, the machine and the data included."""
    figures = theirs(done.entry)
    target = done.facts.get("models", {}).get("target", {})
    said = []
    if figures and target:
        said.append(f"the model: {_model(target)} instead of {_words(dict.fromkeys(f.model for f in figures))}")
        hardware = list(dict.fromkeys(f.hardware for f in figures if f.hardware))
        machine = done.facts["machine"].get("model") or done.facts["machine"]["device"]
        said += [f"the machine: {machine} instead of {_words(hardware)}"] if hardware else []
        data = dict.fromkeys(f.data for f in figures)
        said.append(f"the prompts: {_asked(done)} instead of {_words(data)}")
    said += done.entry.differs
    if done.quick:
        said.append("made with --quick: few prompts, short answers, small datastores; small differences say nothing")
    return said


def _words(parts: Iterable[str]) -> str:
    return ", ".join(parts)


def _model(target: dict[str, Any]) -> str:
    name = without_folders({"models": {"target": target}})["models"]["target"]["name"]
    return f"{name} ({target['parameters'] / 1e6:,.0f} M)" if target.get("parameters") else name


def _asked(done: Reproduction) -> str:
    suites = [run.results.suite for run in done.runs] or [asked_of(done.entry.asked_in(s)) for s in done.entry.settings]
    return f"{len({case for suite in suites for case in suite.cases})} of {suites[0].name}"


def _setting(done: Reproduction) -> list[str]:
    """How answers were made, and on what."""
    entry = done.entry
    said = [f"answers of at most {entry.max_new_tokens} tokens, {counted(entry.repeats, 'repeat')}; " + "; ".join(
        f"{s.name}: temperature {s.temperature:g}, top-p {s.top_p:g}, law {s.law}" for s in entry.settings)]
    return said * any(row.lane for row in entry.rows) + (setting_words(done.facts) if done.facts else [])


def _stores(done: Reproduction) -> list[str]:
    return [
        f"datastore {need}: {store.name}, {counted(store.manifest.tokens, 'token')} in "
        f"{counted(store.manifest.documents, 'document')}, {store.manifest.size / 1e6:,.1f} MB"
        for need, stores in done.stores.items() for store in stores
    ]


def as_object(done: Reproduction) -> dict[str, Any]:
    """Everything, as plain JSON data."""
    return {
        "schema": SCHEMA, "name": done.name, "quick": done.quick, "entry": msgspec.to_builtins(done.entry),
        **without_folders(dict(done.facts)), "differs": differences(done), "left_out": done.left_out,
        "stores": {need: [_store(store) for store in stores] for need, stores in done.stores.items()},
        "cells": [_cell(cell) for cell in done.cells()],
        "claims": [
            {"says": v.claim.says, "setting": v.setting, "measure": v.claim.measure, "rising": list(v.claim.rising),
             "values": list(v.values), "holds": v.holds} for v in done.verdicts()
        ],
        "measures": {name: MEASURES[name].means for name in done.entry.measures},
        "notes": notes(done),
        "runs": [row for run in done.runs for row in _runs(done, run)],
    }


def _store(store: Any) -> dict[str, Any]:
    facts = store.manifest
    return {"name": store.name, "kind": facts.kind, "tokens": facts.tokens, "documents": facts.documents,
            "keys": facts.keys, "bytes": facts.size}


def _cell(cell: Cell) -> dict[str, Any]:
    return {"setting": cell.setting, "row": cell.row, "measure": cell.measure, **_numbers(cell),
            "theirs": [encoding.plain(figure) for figure in cell.theirs]}


def _numbers(cell: Cell) -> dict[str, float | None]:
    """Ours, and between what it lies."""
    return {"here": cell.here, "low": getattr(cell.interval, "low", None), "high": getattr(cell.interval, "high", None)}


def _runs(done: Reproduction, run: SettingRun) -> list[dict[str, Any]]:
    """The complete runs of a setting, each under every row that it is of: two may come to the same lane."""
    measured = Benchmark(run.results, run.asked, dict(done.facts), [])
    return [{"setting": run.setting.name, "row": name} | row | _totals(each)
            for row, each in zip(run_rows(measured), run.results.complete)
            for name, lane in run.lanes.items() if lane == each.lane]


def _totals(run: LaneRun) -> dict[str, Any]:
    """What cells are computed of, beyond the numbers of a benchmark's run."""
    totals, layers = run.state.metrics, run.state.prefilled and run.state.prefilled.layers
    left_out = {"attention": sum(map(bool, layers.attention)), "MLP": sum(map(bool, layers.mlp))} if layers else None
    return {name: getattr(totals, name) for name in _TOTALS} | {
        "match_lengths": totals.stats()["match_lengths"], "left_out": left_out}


def cell_rows(done: Reproduction) -> list[dict[str, Any]]:
    """A row for each number of theirs beside ours, one without for a cell of ours alone."""
    found = []
    for cell in done.cells():
        ours = {"entry": done.name, "setting": cell.setting, "row": cell.row, "measure": cell.measure, **_numbers(cell)}
        found += [ours | _published(figure) for figure in cell.theirs or (None,)]
    return found


def _published(figure: Figure | None) -> dict[str, Any]:
    """A number of theirs, in the columns that say what it is of."""
    of = {name: getattr(figure, name, None) for name in ("model", "data", "hardware", "source")}
    return {"theirs": figure.value if figure else None} | of


def unable(name: str, entry: PaperEntry) -> Report:
    """What is published of an entry that cannot be run here, and why it cannot."""
    figures = theirs(entry)
    said = [f"{_words(entry.sources)}: {entry.title}", entry.shows, f"{name} cannot be run here: {entry.cannot}"]
    rows = [dict.fromkeys(NO_CELLS) | {"entry": name, "row": each.engine, "measure": each.measure} | _published(each)
            for each in figures]
    return Report(
        title=f"{name}: {entry.title}", tables=[_figures(figures)] if figures else [], notes=said,
        data=lambda: {"name": name, "cannot": entry.cannot, "published": [encoding.plain(each) for each in figures]},
        rows=lambda: rows, columns=NO_CELLS)


def _figures(figures: Sequence[Figure]) -> Rows:
    """A row for each number of theirs, with as many columns as it takes to tell the rows apart."""
    columns = {
        "published": [", ".join(filter(None, (each.engine, each.variant))) for each in figures],
        "measure": [each.measure for each in figures], "model": [each.model for each in figures],
        "data": [each.data for each in figures],
    }
    more = {
        "temperature": [or_dash(each.temperature, "{:g}".format) for each in figures],
        "top-p": [f"{each.top_p:g}" for each in figures],
        "options": [", ".join(f"{key}={value}" for key, value in each.options.items()) or "-" for each in figures],
        "where": [each.where for each in figures],
    }
    for name, cells in more.items():
        if len(set(cells)) > 1 and len(set(zip(*columns.values()))) < len(figures):
            columns[name] = cells
    columns["value"] = [MEASURES[each.measure].write(each.value) for each in figures]
    return [list(columns), *map(list, zip(*columns.values()))]


def plot(done: Reproduction) -> Plot | None:
    """By measure and setting our bars, and what papers report as marks beside them; None where there is nothing to
    draw."""
    panels: dict[str, list[BarRow]] = {}
    for cell in done.cells():
        write, known = MEASURES[cell.measure].write, cell.here is not None
        bar = Bar(cell.interval or MedianInterval.of([cell.here]) if known else None, write(cell.here))
        panels.setdefault(f"{cell.measure}, {cell.setting}", []).append(
            BarRow(cell.row, [bar], [figure.value for figure in cell.theirs]))
    shown = {title: rows for title, rows in panels.items() if any(row.bars[0].estimate for row in rows)}
    return Plot(panels=shown, axis="bars: here; diamonds: published, on other models", own=True) if shown else None
