"""What a race comes to: tokens over time; a table that sorts, same texts, acceptance by depth, notes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from engines.race.result import LaneFigures
from spec_tui.present.on_screen import on_screen
from spec_tui.present.race_text import COLUMNS, pair_mark
from spec_tui.present.rows import rows_beside
from spec_tui.present.tables import share
from spec_tui.present.text import one_line
from spec_tui.session.race_state import Point, RaceState
from spec_tui.tui.widgets.race_lanes import merged
from spec_tui.tui.widgets.strip_panel import BLANK, Row, Span, StripPanel, clip, fit, size, title_row
from spec_tui.tui.widgets.strip_plot import columns, lines, nice_top

_LABEL = (17, 26)  # columns of a lane's name, at least and at most
_CELL = 6  # columns of a pair, and of a depth
_LOWEST = 4  # rows of the plot: heading, two of it, axis


SORTS = (None, *(column for column in COLUMNS if column.key is not None))
"""What S goes through: the order of the lanes, then by each column that can be sorted by."""


def ranked(figures: Sequence[LaneFigures], sort: int) -> list[LaneFigures]:
    """The lanes sorted, the best first; those without the number last."""
    column = SORTS[sort % len(SORTS)]
    if column is None:
        return list(figures)
    values = {f.lane: column.key(f) for f in figures}
    return sorted(figures, key=lambda f: (values[f.lane] is None, -(values[f.lane] or 0.0), f.lane))


class RacePlot(StripPanel):
    """Draws lanes' points, each lane with its number."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.series: tuple[tuple[str, list[Point]], ...] = ()
        self.right = self.most = 0.0
        self.state = ""

    def show(self, series: Sequence[tuple[str, list[Point]]], right: float, most: float, state: str = "") -> None:
        """Draw these (mark, points) up to ``right`` seconds and ``most`` tokens."""
        self.series, self.right, self.most, self.state = tuple(series), right, most, state
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        if height < _LOWEST or width < 24:
            return []
        head = title_row(width - 1, "tokens over time", self.state)
        if not any(points for _, points in self.series):
            return [head, [("no run to draw yet", "muted")]]
        top = nice_top(self.most)
        gutter = len(f"{top:g}") + 2
        room, tall = width - gutter - 2, height - 2
        cells = lines(self.series, self.right, top, room, tall)
        rows: list[Row] = [head]
        for y, row in enumerate(cells):
            label = f"{top:g} ┤" if y == 0 else "0 ┤" if y == tall - 1 else "│"
            spans = merged((char, f"lane-{number + 1}" if number >= 0 else "text") for char, number in row)
            rows.append([(label.rjust(gutter), "muted"), *spans])
        end = f"{self.right:.0f} s" if self.right >= 100 else f"{self.right:.3g} s"
        rows.append([("└".rjust(gutter), "muted"), ("─" * (room - len(end) - 1), "rule"), (f" {end}", "muted")])
        return rows


class RaceTable(StripPanel):
    """Draws scores; where there is nothing else, ``alone``, what has no room can be scrolled to."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.race: RaceState | None = None
        self.sort = self.scrolled = 0
        self.alone = False

    def show(self, race: RaceState | None, sort: int = 0, alone: bool = False) -> None:
        """Draw the numbers of this race, sorted by this one of ``SORTS``."""
        self.scrolled *= alone
        self.race, self.sort, self.alone = race, sort, alone
        self.update_rows()

    def scroll(self, lines: int) -> None:
        """Show so many lines further on."""
        self.scrolled = max(0, self.scrolled + lines)
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        race = self.race
        if race is None:
            return []
        rows = table(race, self.sort, width)
        pairs, depths = pair_rows(race), by_depth(race, width)
        beside = size(pairs[0]) + 2 + 30 <= width if pairs else False
        if beside and depths:
            left = size(pairs[0]) + 2
            rows += [BLANK, *_beside(pairs, by_depth(race, width - left), left)]
        else:
            rows += [*([BLANK, *pairs] if pairs else []), *([BLANK, *depths] if depths else [])]
        said = [line for note in race.notes() for line in rows_beside("· ", "muted", one_line(on_screen(note)), width)]
        if len(rows) + 1 + len(said) > height:
            rows = [row for row in rows if row is not BLANK]
        gap = [BLANK] if said and len(rows) + len(said) < height else []
        lines = [clip(row, width) for row in [*rows, *gap, *said]]
        if len(lines) <= height:
            return lines
        if self.alone:
            self.scrolled = min(self.scrolled, len(lines) - height + 1)
            lines, rest = lines[self.scrolled :], "page up and page down scroll"
        else:
            rest = "… m shows it all"
        return [*lines[: height - 1], [(rest, "muted")]]


def table(race: RaceState, sorted_by: int, width: int) -> list[Row]:
    """Lanes and numbers, as many columns as there is room for."""
    chosen = list(COLUMNS)
    while sum(column.width for column in chosen) + _LABEL[0] + 1 > width and any(c.needed for c in chosen):
        chosen.remove(max(chosen, key=lambda column: column.needed))
    label = min(_LABEL[1], max(_LABEL[0], width - 1 - sum(column.width for column in chosen)))
    sort = SORTS[sorted_by % len(SORTS)]
    order = "in the order of the lanes" if sort is None else f"by {sort.title}"
    head: list[Span] = [(" " * label, "text")]
    for column in chosen:
        title, style = (column.title + "▾", "accent") if column is sort else (column.title, "muted")
        head.append((fit(title, column.width, right=True), style))
    rows: list[Row] = [title_row(width - 1, "numbers", f"medians, {order}" if race.asked.repeats > 1 else order), head]
    for f in ranked(race.figures(), sorted_by):
        name = fit(f" {f.lane + 1} {one_line(race.labels[f.lane])}", label)
        numbers = [(fit(column.cell(f, race.asked.baseline), column.width, right=True), "text") for column in chosen]
        rows.append([(name, f"lane-{f.lane + 1}"), *numbers])
    return rows


def pair_rows(race: RaceState) -> list[Row]:
    """Every pair: how their texts compare, and at which token they part."""
    found = {(p.first, p.second): p for p in race.result.pairs}
    if not found:
        return []
    count = len(race.labels)
    wide = 4 + _CELL * count
    rows: list[Row] = [title_row(max(wide, 26), "same text", "")]
    rows.append([(" " * 4, "text"), *[(fit(f"{n + 1}", _CELL), f"lane-{n + 1}") for n in range(count - 1)]])
    for y in range(count):
        row: list[Span] = [(f" {y + 1}  ", f"lane-{y + 1}")]
        for x in range(y + ((y, y) in found)):  # a lane beside itself: its repeats differ
            pair = found.get((x, y))
            mark, style = pair_mark(pair) if pair is not None else ("·", "muted")
            row.append((fit(mark, _CELL), style))
        if len(row) > 1:
            rows.append(row)
    return rows


def by_depth(race: RaceState, width: int) -> list[Row]:
    """Of the drafts that were judged at each depth the share that was accepted, for each lane that drafts."""
    shares = [(f.lane, f.metrics.by_depth) for f in race.figures() if f.metrics.by_depth]
    if not shares:
        return []
    deepest = max(len(found) for _, found in shares)
    plot = min(deepest, 16)
    shown = max(1, min(deepest, (width - 6 - plot) // 5))
    rows: list[Row] = [title_row(width - 1, "accepted at depth", "")]
    head = "".join(fit(str(depth + 1), 5, right=True) for depth in range(shown))
    rows.append([(" " * 3 + " " * plot + " ", "text"), (head, "muted")])
    for lane, found in shares:
        rows.append([(f" {lane + 1} ", f"lane-{lane + 1}"), (fit(columns(found[:plot], 1.0, 1)[0], plot), "bar"),
                     (" " + "".join(fit(share(value), 5, right=True) for value in found[:shown]), "text")])
    return rows


def _beside(left: list[Row], right: list[Row], width: int) -> list[Row]:
    return [[*a, (" " * (width - size(a)), "text"), *b] for a, b in zip_longest(left, right, fillvalue=BLANK)]
