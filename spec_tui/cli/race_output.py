"""What a race comes to, as a table, as Markdown, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any

from engines.hub.download_progress import in_bytes
from engines.race.interval import METHOD, MedianInterval
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun, Result
from engines.report import encoding
from spec_tui.cli.output import run_object
from spec_tui.present.race_text import MEMORY, disturbance_sentence, interval, interval_meaning, pairs_summary, remarks
from spec_tui.present.text import one_line, sanitise

_DEPTHS = 8
WIDTH = 80
_LABEL = 28  # columns for a lane

Rows = list[list[str]]
Lanes = Sequence[tuple[str, LaneFigures]]
"""Labels and figures."""


def table(result: Result, asked: Race) -> str:
    """For people, at most 80 columns: speed, drafts, acceptance by depth, then what is to be said about them. Nothing
    where no run is complete."""
    return as_text(tables(result, asked), asked.labels, notes(result, asked)) if result.complete else ""


def markdown(result: Result, asked: Race) -> str:
    """The same as Markdown."""
    return as_markdown(tables(result, asked), notes(result, asked)) if result.complete else ""


def as_text(blocks: Sequence[Rows], labels: Sequence[str], said: Sequence[str], width: int = WIDTH) -> str:
    """Tables, then sentences, so wide; labels of lanes that are too wide are shortened, and explained."""
    short = _short_labels(labels)
    shown = [[[short.get(row[0], row[0]), *row[1:]] for row in rows] for rows in blocks]
    lines = [fill(sanitise(note), width, subsequent_indent="  ")
             for note in (*(f"{short[label]}: {label}" for label in short), *said)]
    parts = [aligned(part) for rows in shown for part in _folded(rows, width)]
    return "\n\n".join([*parts, *filter(None, ["\n".join(lines)])])


def _folded(rows: Rows, width: int) -> list[Rows]:
    """A table that is too wide, as several with the same first column; an interval stays with its number."""
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
    groups: list[list[int]] = []
    for column, name in enumerate(rows[0][1:], 1):
        if name == "interval" and groups:
            groups[-1].append(column)
        else:
            groups.append([column])
    parts, room = [[0]], width + 2 - widths[0]
    for group in groups:
        wide = sum(widths[column] for column in group)
        if wide > room and len(parts[-1]) > 1:
            parts, room = [*parts, [0]], width + 2 - widths[0]
        parts[-1] += group
        room -= wide
    return [[[row[column] for column in part] for row in rows] for part in parts]


def _short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels that are too wide for the table, numbered, with their ends, in which options differ most often."""
    return {
        label: f"{number} {one_line(label[:8])}…{one_line(label[-(_LABEL - 11):])}"
        for number, label in enumerate(labels, 1) if len(label) > _LABEL
    }


def as_markdown(blocks: Sequence[Rows], said: Sequence[str]) -> str:
    """Tables, then a list of sentences."""
    lines = [f"- {escaped(note)}" for note in said]
    return "\n\n".join([*("\n".join(markdown_rows(rows)) for rows in blocks), *filter(None, ["\n".join(lines)])])


def tables(result: Result, asked: Race) -> list[Rows]:
    """Rows of cells, the header first: speed; drafts; acceptance by depth, where something was drafted."""
    lanes = list(zip(asked.labels, result.figures()))
    depths = depth_rows(lanes)
    return [speed_rows(lanes, asked.labels[asked.baseline]), draft_rows(lanes)] + ([depths] if len(depths) > 1 else [])


def speed_rows(lanes: Lanes, baseline: str) -> Rows:
    """Tokens/s, and speed-ups over the lane with the label ``baseline``."""
    rows = [["lane", "tokens/s", "interval", f"x {one_line(baseline, 14)}", "interval"]]
    for label, figures in lanes:
        rate, up = figures.rate, figures.speed_up
        known = "1.00" if label == baseline and rate else number(up, 2)
        rows.append([label, number(rate, 1), interval(rate), known, interval(up, 2)])
    return rows


def draft_rows(lanes: Lanes) -> Rows:
    """What became of drafts, and what a lane takes."""
    rows = [["lane", "accepted", "of path", "M", "TTFT", "memory"]]
    for label, figures in lanes:
        m = figures.metrics
        memory = "-" if figures.memory is None else in_bytes(figures.memory)
        length = "-" if m.mean_generated_length is None else f"{m.mean_generated_length:.2f}"
        shares = share(m.acceptance_rate), share(m.path_acceptance)
        rows.append([label, *shares, length, milliseconds(figures.ttft), memory])
    return rows


def depth_rows(lanes: Lanes) -> Rows:
    """Acceptance by depth, of those that drafted."""
    rows = [["accepted at depth", *(str(d + 1) for d in range(_DEPTHS))]]
    for label, figures in lanes:
        if figures.metrics.drafted:
            shares = [share(accepted) for accepted in by_depth(figures)][:_DEPTHS]
            rows.append([label, *shares, *[""] * (_DEPTHS - len(shares))])
    return rows


def notes(result: Result, asked: Race) -> list[str]:
    """What the numbers do not say themselves, in sentences."""
    figures = result.figures()
    estimates = [f.rate for f in figures]
    said = [*remarks(result, asked.labels), *pairs_summary(result.pairs, asked.labels)]
    if any(estimates):
        said.append(interval_meaning(estimates))
    said.append(f"memory: {MEMORY}")
    return said + list(filter(None, [disturbance_sentence(result.disturbance())]))


def by_depth(figures: LaneFigures) -> list[float]:
    """Acceptance by depth, the first drafted position first."""
    m = figures.metrics
    return [kept / tried for kept, tried in zip(m.depth_accepted, m.depth_tried) if tried]


def as_json(result: Result, asked: Race) -> str:
    """One object. Non-ASCII is escaped, so nothing in it can steer a terminal."""
    disturbed = result.disturbance()
    return json.dumps({
        "prompts": result.started.prompts if result.started else 0,
        "repeats": asked.repeats,
        "baseline": asked.labels[asked.baseline],
        "finish_reason": result.finished.reason if result.finished else "cancelled",
        "lanes": [lane_object(figures, asked) for figures in result.figures()],
        "intervals": METHOD,
        "memory": MEMORY,
        "pairs": pair_objects(result, asked),
        "other_cores": disturbed.other_cores,
        "waited": disturbed.waited,
        "notes": notes(result, asked),
        "runs": [_run(run, asked) for run in result.complete],
    })


def pair_objects(result: Result, asked: Race) -> list[dict[str, Any]]:
    """The texts of each pair of lanes, by label."""
    names = asked.labels
    return [
        {**encoding.plain(p), "first": names[p.first], "second": names[p.second], "bugs": [names[n] for n in p.bugs]}
        for p in result.pairs
    ]


def lane_object(figures: LaneFigures, asked: Race) -> dict[str, Any]:
    """A lane and its figures."""
    lane, m = asked.lanes[figures.lane], figures.metrics
    return {
        "lane": asked.labels[figures.lane],
        "engine": lane.engine,
        "options": lane.options,
        "datastores": list(lane.datastores),
        "tokens_per_second": encoding.plain(figures.rate),
        "speed_up": encoding.plain(figures.speed_up),
        "acceptance_rate": m.acceptance_rate,
        "path_acceptance": m.path_acceptance,
        "mean_generated_length": m.mean_generated_length,
        "acceptance_by_depth": by_depth(figures),
        "ttft_seconds": figures.ttft,
        "memory_bytes": figures.memory,
    }


def _run(run: LaneRun, asked: Race) -> dict[str, Any]:
    made = run_object(run.started, run.metrics, run.end.tokens, run.end.text, run.end.reason)
    if asked.audit or run.audited:
        made["audit"] = encoding.plain(run.audited) if run.audited else None
    return {**_place(run, asked), **_around(run), "run": made}


def as_csv(result: Result, asked: Race) -> str:
    """A row for each complete run, its numbers as in JSON."""
    return csv_text([run_row(run, asked) for run in result.complete])


def run_row(run: LaneRun, asked: Race) -> dict[str, Any]:
    """A complete run as a row."""
    stats = {k: v for k, v in run.metrics.stats().items() if k != "match_lengths"}
    ends = {"engine": run.started.engine, "finish_reason": run.end.reason}
    return {**_place(run, asked), **ends, **_around(run), **stats}


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of the same columns, under their names."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["lane", "repeat", "prompt"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().removesuffix("\n")


def _place(run: LaneRun, asked: Race) -> dict[str, Any]:
    return {"lane": sanitise(asked.labels[run.lane]), "repeat": run.repeat, "prompt": run.prompt}


def _around(run: LaneRun) -> dict[str, Any]:
    """What was measured around a run; the ``other_seconds`` in its numbers are the loop's."""
    end = run.finished
    return {
        "ttft_seconds": run.ttft, "wall_seconds": end.seconds, "memory_bytes": end.memory,
        "other_programs_seconds": end.other_seconds, "waited_seconds": end.waited_seconds,
    }


def number(estimate: MedianInterval | None, digits: int) -> str:
    return "-" if estimate is None else f"{estimate.median:.{digits}f}"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f} ms"


def aligned(rows: Rows) -> str:
    """Columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def markdown_rows(rows: Rows) -> list[str]:
    head, *body = ([escaped(cell) for cell in row] for row in rows)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def escaped(text: str) -> str:
    """Text that Markdown and terminals take as it is."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


WRITERS: dict[str, Callable[[Result, Race], str]] = {
    "table": table, "json": as_json, "csv": as_csv, "md": markdown,
}
