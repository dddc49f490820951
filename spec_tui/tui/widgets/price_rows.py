"""t(n) and break-even as rows: what the speed panel and the view of the price both show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from engines.cost.curve import BreakEven, CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods import drafts_nothing
from engines.report.events import Round
from engines.report.run_state import RunState
from spec_tui.tui.price_words import SpeedEstimate, off, pays_from, share
from spec_tui.tui.widgets.strip_panel import Row, Span, fit
from spec_tui.tui.widgets.strip_plot import columns, nice_top

ROWS = 64  # the end of the axis
HERE, BEST, PAPER = "◆", "★", "P"
LABEL = 7  # columns before a plot
_TICKS = (1, 8, 16, 32, 48, 64)
_FAR = 2.0  # times the curve's end: a slower forward is an accident and does not flatten the curve
_EVEN = 0.03  # of the speed-up, which no run measures better

Marks = Mapping[int, Span]
"""Column of a line: the glyph that stands there, and its style."""


def break_even(run: RunState, found: SpeedEstimate | None, width: int, measured: float | None = None) -> Row:
    """What a round needs and makes, and whether that pays, in 41 columns; before a run what it would take.
    ``measured``: times as fast as the baseline, where there is one."""
    m, even = run.metrics, run.metrics.break_even
    if run.started is not None and drafts_nothing(run.started.engine):
        return [("○ drafts nothing: one token a round", "muted")]
    if even is not None and m.drafted:
        mark, words, style = _verdict(even, found, m.verify_scale or 1.0, measured)
        each = " a round" if width >= 48 else ""
        return [(mark, style), ("needs", "muted"), (f"{even.needs:6.2f}", "strong"), (", makes", "muted"),
                (f"{even.makes:6.2f}", "strong"), (f"{each}: ", "muted"), (words, style)]
    if run.rounds:
        return [("○ " + ("nothing drafted so far" if m.price else "break-even: t(n) is not known"), "muted")]
    if found is None:
        return [("○ break-even: not measured yet", "muted")]
    least = pays_from(found.forecast)
    if least is None:
        return [("✗ cannot pay", "bad"), (f": ×{found.forecast.at_best:.2f} with all accepted", "muted")]
    return [("○ pays from ", "muted"), (share(least), "strong"), (f" acceptance a {found.unit}", "muted")]


def _verdict(
    even: BreakEven, found: SpeedEstimate | None, scale: float = 1.0, measured: float | None = None
) -> tuple[str, str, str]:
    """Mark, words and style. What was measured against a baseline decides; without one a run off the curve, whose
    t(n) is no longer the machine's, gets no verdict."""
    if measured is None and off(scale):
        return "≈ ", f"×{even.speed_up:.2f} by t(n)", "warn"
    speed = even.speed_up if measured is None else measured
    style = style_of(speed)
    if style == "warn":
        return "≈ ", f"even ×{speed:.2f}", style
    if style == "good":
        return "✓ ", f"pays ×{speed:.2f}", style
    if measured is not None:
        return "✗ ", f"slower ×{speed:.2f}", style
    hopeless = found is not None and pays_from(found.forecast) is None
    return "✗ ", "cannot pay" if hopeless else "does not pay", style


def style_of(speed: float) -> str:
    """The style of a speed-up: good, bad, or warn where no run can tell it from 1."""
    return "warn" if abs(speed - 1) < _EVEN else "good" if speed > 1 else "bad"


def of_curve(scale: float | None) -> Span:
    """How a run's verification compares with t(n)."""
    if scale is None:
        return "measured at load", "muted"
    return f"run: ×{scale:.2f} of t(n)", "warn" if off(scale) else "muted"


def this_round(event: Round | None) -> list[Span]:
    """The round shown, as it stands in the plot; columns that don't move."""
    if event is None:
        return []
    rows = 1 + len(event.draft.tokens)
    return [(HERE, "accent"), (f"{rows:>3} row{'s' if rows > 1 else ' '}", "text"),
            (f"{event.verify_seconds * 1000:>8.1f} ms", "strong")]


def cost_top(curve: CostCurve, seconds: float = 0.0) -> float:
    """Where the axis of a plot of t(n) ends, in ms: above the curve, and the forward if it is no accident."""
    end = curve.at(ROWS) * 1000
    return nice_top(max(end, min(seconds * 1000, _FAR * end)))


def cost_plot(
    curve: CostCurve, top: float, width: int, height: int, event: Round | None = None
) -> list[Row]:
    """t(n) in ms over 1..64 rows, both axes linear, from zero; the forward of a round on it. An axis more than
    ``height`` rows."""
    room = width - LABEL
    at, marks = -1, {}
    if event is not None:
        took = event.verify_seconds * 1000
        at = height - 1 - min(int(took / top * height), height - 1)
        marks = {column_of(1 + len(event.draft.tokens), room): (HERE if took <= top else "▲", "accent")}
    out: list[Row] = []
    for y, line in enumerate(_curve(curve, top, room, height)):
        label = f"{top:>5g} ┤" if y == 0 else "      │"
        out.append([(label, "muted"), *overlay(line, "bar", marks if y == at else {})])
    return [*out, [("    0 ┼", "muted"), (_axis(room), "muted")]]


@lru_cache(maxsize=8)
def _curve(curve: CostCurve, top: float, width: int, height: int) -> tuple[str, ...]:
    per = (ROWS - 1) / max(1, width - 1)
    return tuple(columns([curve.at(1 + x * per) * 1000 for x in range(width)], top, height))


@lru_cache(maxsize=8)
def _axis(width: int) -> str:
    line = ["─"] * width
    for tick in _TICKS:
        start = min(max(0, column_of(tick, width) - len(str(tick)) // 2), width - len(str(tick)))
        if tick in (1, ROWS) or all(c == "─" for c in line[max(0, start - 2) : start + 4]):
            line[start : start + len(str(tick))] = str(tick)
    return "".join(line)


def column_of(rows: float, width: int) -> int:
    """The column of so many rows on an axis of this width."""
    return round((min(rows, ROWS) - 1) / (ROWS - 1) * (width - 1))


def overlay(line: str, style: str, marks: Marks) -> list[Span]:
    """A line in this style with glyphs in others on it."""
    out: list[Span] = []
    begin = 0
    for column in sorted(marks):
        out += [(line[begin:column], style), marks[column]]
        begin = column + 1
    return [*out, (line[begin:], style)]


def mark_row(width: int, marks: Marks, key: Row = ()) -> Row:
    """The row below an axis: glyphs at their columns, and at the end what they mean, where that is free."""
    room, size = width - LABEL, sum(len(text) for text, _ in key)
    if not marks or max(marks) > room - size - 3:
        key, size = (), 0
    return [(" " * LABEL, "text"), *overlay(" " * (room - size), "text", marks), *key]


def speed_plot(found: SpeedEstimate, forecast: SpeedupModel, width: int, height: int) -> list[Row]:
    """Expected tokens a second, as a multiple of drafting nothing, over the size of the draft; what pays stands out.
    Two rows more than ``height``: the axis, and below it what is best and what is published."""
    speeds = [forecast.speed_up(depth) for depth in range(forecast.most + 1)]
    bars, top = [(speed, "good" if speed > 1 + 1e-9 else "bar") for speed in speeds], nice_top(max(speeds))
    return _size_plot(bars, top, width, height, 1.0, {found.paper: (PAPER, "accent"), forecast.best: (BEST, "good")})


def needed_plot(found: SpeedEstimate, forecast: SpeedupModel, width: int, height: int) -> list[Row]:
    """The acceptance in percent from which drafts of a size pay, in the same frame; what never pays stands out."""
    needed = [forecast.acceptance_needed(depth) for depth in range(forecast.most + 1)]
    bars = [(100.0, "bad") if share is None else (share * 100, "bar") for share in needed]
    return _size_plot(bars, 100.0, width, height, None, {found.paper: (PAPER, "accent")})


def _size_plot(
    bars: Sequence[tuple[float, str]], top: float, width: int, height: int, level: float | None,
    below: Mapping[int | None, Span],
) -> list[Row]:
    """Bars (value, style) over the sizes of a draft from 0, with a line at a level; what stands below which size."""
    room = width - LABEL
    step = max(1, min(8, room // len(bars)))
    bars = bars[: room // step]
    line = height - 1 - int(level / top * height) if level else -1
    out: list[Row] = []
    for y, cells in enumerate(columns([value for value, _ in bars], top, height)):
        label = f"{top:>5g} ┤" if y == 0 else f"{level:>5g} ┤" if y == line else "      │"
        blank = "┄" if y == line else " "
        row: list[Span] = [(label, "muted")]
        for cell, (_, style) in zip(cells, bars):
            body = max(1, step - 1)
            row += [(blank * body, "muted") if cell == " " else (cell * body, style), (blank * (step - body), "muted")]
        out.append([*row, (blank * (room - step * len(bars)), "muted")])
    marks = {best_column(size, step): mark for size, mark in below.items() if size is not None and size < len(bars)}
    return [*out, [("    0 ┼", "muted"), (_sizes(len(bars), step, room), "muted")], mark_row(width, marks)]


def best_column(depth: int, step: int) -> int:
    """The middle of a size's bar."""
    return depth * step + max(0, step - 2) // 2


def _sizes(count: int, step: int, width: int) -> str:
    """The axis of a plot over sizes: as many of them as can be read."""
    line = ["─"] * width
    every = next(n for n in (1, 2, 4, 5, 8, 10, 16, 32, 64, 128, 256) if n * step >= 4 or n * step >= count)
    for depth in range(0, count, every):
        start = best_column(depth, step)
        line[start : start + len(str(depth))] = str(depth)
    return fit("".join(line), width)
