"""What a race comes to, as a table, as Markdown, as JSON, as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any

from engines import codec
from engines.race.estimate import METHOD, Estimate
from engines.race.lanes import Race
from engines.race.result import LaneFigures, LaneRun, Result
from engines.sources.meter import in_bytes
from spec_tui.cli.output import run_object
from spec_tui.standings import MEMORY, disturbance_sentence, interval, interval_meaning, pairs_summary, remarks
from spec_tui.text import one_line, sanitise

_DEPTHS = 8
_WIDTH = 80
_LABEL = 28  # columns for a lane

Rows = list[list[str]]


def table(result: Result, asked: Race) -> str:
    """For people, at most 80 columns: speed, drafts, acceptance by depth, then what is to be said about them. Nothing
    where no run is complete."""
    if not result.complete:
        return ""
    short = _short_labels(asked.labels)
    blocks = [_aligned([[short.get(row[0], row[0]), *row[1:]] for row in rows]) for rows in tables(result, asked)]
    said = [fill(sanitise(note), _WIDTH, subsequent_indent="  ")
            for note in (*(f"{short[label]}: {label}" for label in short), *notes(result, asked))]
    return "\n\n".join([*blocks, *filter(None, ["\n".join(said)])])


def _short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels that are too wide for the table, numbered, with their ends, in which options differ most often."""
    return {
        label: f"{number} {one_line(label[:8])}…{one_line(label[-(_LABEL - 11):])}"
        for number, label in enumerate(labels, 1) if len(label) > _LABEL
    }


def markdown(result: Result, asked: Race) -> str:
    """The same as Markdown."""
    if not result.complete:
        return ""
    blocks = ["\n".join(_markdown(rows)) for rows in tables(result, asked)]
    said = [f"- {_escaped(note)}" for note in notes(result, asked)]
    return "\n\n".join([*blocks, *filter(None, ["\n".join(said)])])


def tables(result: Result, asked: Race) -> list[Rows]:
    """Rows of cells, the header first: speed; drafts; acceptance by depth, where something was drafted."""
    lanes = list(zip(asked.labels, result.figures()))
    base = f"x {one_line(asked.labels[asked.baseline], 14)}"
    speed = [["lane", "tokens/s", "interval", base, "interval"]]
    drafts = [["lane", "accepted", "of path", "M", "TTFT", "memory"]]
    depths = [["accepted at depth", *(str(d + 1) for d in range(_DEPTHS))]]
    for label, figures in lanes:
        m = figures.metrics
        rate, up = figures.rate, figures.speed_up
        known = "1.00" if figures.lane == asked.baseline and rate else _number(up, 2)
        speed.append([label, _number(rate, 1), interval(rate), known, interval(up, 2)])
        memory = "-" if figures.memory is None else in_bytes(figures.memory)
        ttft = "-" if figures.ttft is None else f"{figures.ttft * 1e3:.0f} ms"
        length = "-" if m.mean_generated_length is None else f"{m.mean_generated_length:.2f}"
        drafts.append([label, _share(m.acceptance_rate), _share(m.path_acceptance), length, ttft, memory])
        if m.drafted:
            shares = [_share(share) for share in by_depth(figures)][:_DEPTHS]
            depths.append([label, *shares, *[""] * (_DEPTHS - len(shares))])
    return [speed, drafts] + ([depths] if len(depths) > 1 else [])


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
        "lanes": [_lane(figures, asked) for figures in result.figures()],
        "intervals": METHOD,
        "memory": MEMORY,
        "pairs": [
            {**codec.plain(p), "first": asked.labels[p.first], "second": asked.labels[p.second],
             "bugs": [asked.labels[lane] for lane in p.bugs]}
            for p in result.pairs
        ],
        "other_cores": disturbed.other_cores,
        "waited": disturbed.waited,
        "notes": notes(result, asked),
        "runs": [_run(run, asked) for run in result.complete],
    })


def _lane(figures: LaneFigures, asked: Race) -> dict[str, Any]:
    lane, m = asked.lanes[figures.lane], figures.metrics
    return {
        "lane": asked.labels[figures.lane],
        "engine": lane.engine,
        "options": lane.options,
        "datastores": list(lane.datastores),
        "tokens_per_second": codec.plain(figures.rate),
        "speed_up": codec.plain(figures.speed_up),
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
        made["audit"] = codec.plain(run.audited) if run.audited else None
    return {**_place(run, asked), **_around(run), "run": made}


def as_csv(result: Result, asked: Race) -> str:
    """A row for each complete run, its numbers as in JSON."""
    out = io.StringIO()
    rows = [
        {**_place(run, asked), "engine": run.started.engine, "finish_reason": run.end.reason, **_around(run),
         **{k: v for k, v in run.metrics.stats().items() if k != "match_lengths"}}
        for run in result.complete
    ]
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


def _number(estimate: Estimate | None, digits: int) -> str:
    return "-" if estimate is None else f"{estimate.median:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _aligned(rows: Rows) -> str:
    """Columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _markdown(rows: Rows) -> list[str]:
    head, *body = ([_escaped(cell) for cell in row] for row in rows)
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _escaped(text: str) -> str:
    """Text that Markdown and terminals take as it is."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


WRITERS: dict[str, Callable[[Result, Race], str]] = {
    "table": table, "json": as_json, "csv": as_csv, "md": markdown,
}
