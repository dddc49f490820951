"""Reports drawn: panels of bars with intervals. One hue or two, told apart by hatching too."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from engines.race.interval import MedianInterval
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_THEIRS, _LINE = "#e69f00", "#444444"  # of Okabe and Ito's palette, and tints
_LABEL, _TITLE, _COLUMNS = 30, 60, 4
_SETTINGS = {
    "text.parse_math": False,  # a dollar in a label is a dollar
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "svg.hashsalt": "spec-tui", "hatch.linewidth": 0.6,
}
_DRAWN = {"ours": ("#0072b2", ""), "theirs": (_THEIRS, "///"), "slower": ("#9fb8c8", "///")}
"""Colour and hatching by the kind of a bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A median with its interval as a whisker, and words after it; ``kind``: "ours", "theirs" or "slower"."""

    estimate: MedianInterval | None
    words: str = ""
    kind: str = "ours"


@dataclass(frozen=True, slots=True)
class BarRow:
    """What stands beside a label: bars, one below the other, and marks at other values."""

    label: str
    bars: Sequence[Bar]
    marks: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """A picture: panels by title, with the same axis.

    Attributes:
        axis: what is measured; ``own``: whether each panel has a length and a label of its own.
        line: a value that a line stands at.
        legend: kinds of bars, with their names.
    """

    panels: dict[str, Sequence[BarRow]]
    axis: str
    own: bool = False
    line: float | None = None
    legend: dict[str, str] | None = None


def speed_bar(estimate: MedianInterval | None) -> Bar:
    """A speed-up, lighter and hatched where it is below 1."""
    if estimate is None:
        return Bar(None)
    return Bar(estimate, f"{estimate.median:.2f}", "slower" if estimate.median < 1 else "ours")


def draw(plot: Plot) -> bytes:
    """A picture as SVG."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), rc_context(_SETTINGS):
        warnings.simplefilter("ignore")  # letters that the font lacks become boxes
        columns = 1 if plot.own else min(_COLUMNS, len(plot.panels))
        rows = math.ceil(len(plot.panels) / columns)
        bars = max(sum(len(row.bars) for row in panel) for panel in plot.panels.values())
        size = 5.0 + 2.5 * columns, rows * (1.2 + 0.36 * bars)
        figure = Figure(figsize=size, layout="constrained")
        grid = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
        ends = [max(plot.line or 0.0, *(place for row in panel for place in (*map(_reach, row.bars), *row.marks)))
                for panel in plot.panels.values()]
        for place, (title, axes) in enumerate(zip(plot.panels, grid)):
            _panel(axes, plot, plot.panels[title], len(plot.panels) > 1)
            axes.set_title(one_line(title, _TITLE if plot.own else _LABEL), fontsize=10, loc="left")
            axes.set_xlim(0, (ends[place] if plot.own else max(ends)) * (1.12 if columns == 1 else 1.22) or 1)
            axes.tick_params(labelleft=place % columns == 0)
        for axes in grid[len(plot.panels):]:
            axes.set_visible(False)
        if not plot.own:
            figure.supxlabel(plot.axis, fontsize=10)
        drawn = BytesIO()
        figure.savefig(drawn, format="svg", bbox_inches="tight", metadata={"Date": None})
        return drawn.getvalue()


def _panel(axes: Axes, plot: Plot, rows: Sequence[BarRow], small: bool) -> None:
    for place, row in enumerate(rows):
        height = 0.72 / max(1, len(row.bars))
        for number, bar in enumerate(row.bars):
            _bar(axes, place + (number - (len(row.bars) - 1) / 2) * height, bar, height * 0.94, small)
        axes.plot(row.marks, [place] * len(row.marks), linestyle="none", marker="D", markersize=5, color=_THEIRS,
                  markeredgecolor=_LINE, markeredgewidth=0.6)
    axes.set_yticks(range(len(rows)), [one_line(row.label, _LABEL) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.grid(axis="x", color="#dddddd")
    if plot.own:
        axes.set_xlabel(plot.axis)
    if plot.line is not None:
        axes.axvline(plot.line, color=_LINE, linewidth=1)
    if plot.legend:
        from matplotlib.patches import Patch

        shown = [Patch(facecolor=_DRAWN[kind][0], edgecolor="white", hatch=_DRAWN[kind][1], label=name)
                 for kind, name in plot.legend.items()]
        axes.legend(handles=shown, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


def _bar(axes: Axes, at: float, bar: Bar, height: float, small: bool) -> None:
    estimate, (colour, hatch) = bar.estimate, _DRAWN[bar.kind]
    if estimate is None:
        return
    axes.barh(at, estimate.median, height, color=colour, hatch=hatch, edgecolor="white")
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [at, at], color=_LINE, linewidth=1.4, marker="|", markersize=5)
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a line does not cross it
    axes.annotate(bar.words, (_reach(bar), at), (5, 0), textcoords="offset points", va="center",
                  fontsize=8 if small else 10, color=_LINE, bbox=clear)


def _reach(bar: Bar) -> float:
    """How far to the right a bar reaches, its whisker included."""
    return 0.0 if bar.estimate is None else max(bar.estimate.median, bar.estimate.high or 0.0)
