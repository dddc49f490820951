"""Tables of cells, and sentences below them, as aligned text, as Markdown and as CSV; and how numbers look in cells."""

from __future__ import annotations

import csv
import html
import io
import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engines.hub.download_progress import in_bytes
from engines.race.interval import MedianInterval
from spec_tui.present.text import cells, fill, one_line, padded, sanitise

LEAST = 30  # columns that lines fill, however narrow the terminal is
_MOST = 120  # columns that lines fill, however wide it is
_LABEL = 28  # columns for a lane
_MARKUP = re.compile(r"([\\`*\[\]|~#!]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_NUMBER = re.compile(r"""baseline|[^\w"]*(\d((?![^\W\d_]{4})[^"])*)?""")  # "1.15x?, 83%", "19 ms", a mark for none

Cell = str | tuple[str, str]
"""What stands there; or a number and its interval, for which a terminal has no room."""
Rows = list[list[Cell]]
"""Cells by row, the header first."""


def in_number(count: int, gap: str = " ") -> str:
    """A large number in three digits: "11.6 M"."""
    rounded = float(f"{count:.3g}")  # first: 999,900 is 1 M
    for size, letter in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if rounded >= size:
            return f"{rounded / size:g}{gap}{letter}"
    return str(count)


def text_width() -> int:
    """Columns for text: those of the terminal, within limits, or of COLUMNS; 80 in a pipe."""
    return min(_MOST, max(LEAST, shutil.get_terminal_size().columns))


def or_dash(value: Any, form: Callable[[Any], str], none: str = "-") -> str:
    """A value as ``form`` writes it; a dash or other words where there is none."""
    return none if value is None else form(value)


def count_or_dash(count: int | None) -> str:
    """A count of a run; a dash where it is not known."""
    return or_dash(count, str, "—")


share = partial(or_dash, form="{:.0%}".format)
length = partial(or_dash, form="{:.2f}".format)
memory = partial(or_dash, form=in_bytes)


def median(estimate: MedianInterval | None, digits: int) -> str:
    """A median; a dash where there is none."""
    return "-" if estimate is None else f"{estimate.median:.{digits}f}"


def interval(estimate: MedianInterval | None, digits: int = 1) -> str:
    """``67.1..71.2``; a dash where there are too few samples for one."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return "-"
    return f"{estimate.low:.{digits}f}..{estimate.high:.{digits}f}"


def with_interval(estimate: MedianInterval | None, digits: int) -> Cell:
    """A median and its interval in one cell."""
    known = interval(estimate, digits)
    return median(estimate, digits) if known == "-" else (median(estimate, digits), known)


def whole(rows: Rows) -> list[list[str]]:
    """The cells with their intervals."""
    return [[cell if isinstance(cell, str) else f"{cell[0]} ({cell[1]})" for cell in row] for row in rows]


def milliseconds(seconds: float | None, digits: int = 0) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.{digits}f} ms"


def as_text(blocks: Sequence[Rows], labels: Sequence[str], notes: Sequence[str], width: int = 0) -> str:
    """Tables, then sentences, so wide (0: as the terminal); too wide labels of lanes are shortened, and explained."""
    width = width or text_width()
    short = _short_labels(labels)
    shown = [[[short.get(name, name), *(cell if isinstance(cell, str) else cell[0] for cell in others)]
              for name, *others in rows] for rows in blocks]
    lines = [fill(sanitise(note), width, subsequent_indent="  ")
             for note in (*(f"{short[label]}: {label}" for label in short), *notes)]
    parts = ["\n".join(aligned(rows, width)) for rows in shown]
    return "\n\n".join([*parts, *filter(None, ["\n".join(lines)])])


def as_markdown(blocks: Sequence[Rows], notes: Sequence[str]) -> str:
    """Tables, then a list of sentences."""
    lines = [f"- {escaped(note)}" for note in notes]
    return "\n\n".join([*("\n".join(_markdown_rows(rows)) for rows in blocks), *filter(None, ["\n".join(lines)])])


def as_csv(rows: Sequence[dict[str, Any]], empty: Sequence[str] = ()) -> str:
    """Rows of the same columns, under their names; ``empty`` are the names where there is no row."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else list(empty), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().removesuffix("\n")


def escaped(text: str) -> str:
    """Text that is no markup of Markdown's, and that terminals take as it is."""
    return _MARKUP.sub(r"\\\1", html.escape(one_line(text), quote=False))


def aligned(rows: Rows, width: int = 0) -> list[str]:
    """The lines of a table, so wide (0: as the terminal): it goes on below, after an empty line."""
    return "\n\n".join(map(_aligned, _folded(rows, width or text_width()))).split("\n")


def _aligned(rows: Rows) -> str:
    """Columns: the first to the left, the others to the right."""
    widths = [max(cells(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(padded(cell, width, right=i > 0) for i, (cell, width) in enumerate(zip(row, widths)))
             for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _folded(rows: Rows, width: int) -> list[Rows]:
    """A table that is too wide, as several with the same first column; an interval stays with its number."""
    widths = [max(cells(row[i]) for row in rows) + 2 for i in range(len(rows[0]))]
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
    """Labels that are too wide for the table, numbered, with the settings in which they differ; of these the ends."""
    long = {label: number for number, label in enumerate(labels, 1) if len(label) > _LABEL}
    shared = set.intersection(*(set(label.split(":")) for label in long)) if len(long) > 1 else set()
    short = {}
    for label, number in long.items():
        engine, *settings = label.split(":")
        own = ":".join([engine, "…", *(setting for setting in settings if setting not in shared)])
        own = own if len(own) <= _LABEL - 2 else f"{label[:8]}…{own[-(_LABEL - 11):]}"
        short[label] = f"{number} {one_line(own)}"
    return short


def _markdown_rows(rows: Rows) -> list[str]:
    head, *body = ([escaped(cell) for cell in row] for row in whole(rows))
    words = {column for row in body for column, cell in enumerate(row) if not _NUMBER.fullmatch(cell)}
    rule = ["---" if not column or column in words else "---:" for column in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]
