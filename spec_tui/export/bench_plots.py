"""A benchmark drawn: speed-ups, speed-ups by task, ours beside generate. One hue or two, told apart by hatching too."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engines.race.interval import MedianInterval
from spec_tui.export.bench_report import Report
from spec_tui.present.text import one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OURS, THEIRS, _SLOWER, LINE = "#0072b2", "#e69f00", "#9fb8c8", "#444444"  # of Okabe and Ito's palette, and tints
_LABEL, _COLUMNS = 30, 4
SETTINGS = {
    "text.parse_math": False,  # a dollar in a label is a dollar
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "svg.hashsalt": "spec-tui", "hatch.linewidth": 0.6,
}


def draw(report: Report, folder: Path, names: Sequence[str]) -> list[str]:
    """Draw what there is into files of these names, and say which there are. Raises OSError."""
    from matplotlib import rc_context

    with warnings.catch_warnings(), rc_context(SETTINGS):
        warnings.simplefilter("ignore")  # letters that the font lacks become boxes
        figures = zip(names, (_speed_ups(report), _tasks(report), _beside_generate(report)))
        drawn = {name: figure for name, figure in figures if figure is not None}
        for name, figure in drawn.items():
            figure.savefig(folder / name, bbox_inches="tight", metadata={"Date": None})
    return list(drawn)


def _speed_ups(report: Report) -> Figure | None:
    """Speed-up over the baseline, a lane a row, with intervals."""
    s, base = report.results, report.asked.baseline
    found = [(report.labels[lane], s.ratio(lane, base)) for lane in s.raced if lane != base]
    if not any(estimate for _, estimate in found):
        return None
    figure, (axes,) = panels(1, 1, 7.5, 1.2 + 0.36 * len(found))
    _bars(axes, found)
    furthest = max(_end(estimate) for _, estimate in found)
    label_axis(axes, f"tokens/s over {short_name(report.labels[base])}, {_spread(report)}", furthest * 1.12)
    return figure


def _tasks(report: Report) -> Figure | None:
    """The same by task, a panel each."""
    s, base = report.results, report.asked.baseline
    lanes = [lane for lane in s.raced if lane != base]
    if len(s.tasks) < 2 or not lanes:
        return None
    columns = min(_COLUMNS, len(s.tasks))
    rows = math.ceil(len(s.tasks) / columns)
    figure, grid = panels(rows, columns, 2.6 + 2.5 * columns, rows * (1.1 + 0.27 * len(lanes)))
    found = {task: [(report.labels[lane], s.ratio(lane, base, task)) for lane in lanes] for task in s.tasks}
    furthest = max((_end(estimate) for ratios in found.values() for _, estimate in ratios), default=1.0)
    for place, (task, axes) in enumerate(zip(s.tasks, grid)):
        _bars(axes, found[task], small=True)
        label_axis(axes, "", furthest * 1.22)
        axes.set_title(one_line(task, _LABEL), fontsize=10, loc="left")
        axes.tick_params(labelleft=place % columns == 0)
    for axes in grid[len(s.tasks):]:
        axes.set_visible(False)
    figure.supxlabel(f"tokens/s over {short_name(report.labels[base])}, by task, {_spread(report)}", fontsize=10)
    return figure


def _beside_generate(report: Report) -> Figure | None:
    """Tokens/s of ours and of generate, for each lane whose method transformers has."""
    s = report.results
    pairs = [(lane, other) for lane in s.own if (other := s.counterpart(lane)) is not None]
    if not pairs:
        return None
    figure, (axes,) = panels(1, 1, 7.5, 1.4 + 0.62 * len(pairs))
    figures = s.by_task()
    for row, (lane, other) in enumerate(pairs):
        ratio = s.ratio(lane, other)
        words = "" if ratio is None else f"{ratio.median:.2f} x"
        bar(axes, row - 0.19, figures[lane].rate, OURS, 0.36, words)
        bar(axes, row + 0.19, figures[other].rate, THEIRS, 0.36, "", hatch="///")
    label_rows(axes, [report.labels[lane] for lane, _ in pairs])
    from matplotlib.patches import Patch

    shown = [Patch(facecolor=OURS, label="spec-tui"),
             Patch(facecolor=THEIRS, edgecolor="white", hatch="///", label="transformers.generate, the same method")]
    axes.legend(handles=shown, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)
    furthest = max(_end(figures[lane].rate) for pair in pairs for lane in pair)
    label_axis(axes, f"tokens/s, {_spread(report)}", furthest * 1.12)
    return figure


def panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    return figure, list(grid.flat)


def _bars(axes: Axes, found: Sequence[tuple[str, MedianInterval | None]], small: bool = False) -> None:
    """A bar for each label, lighter and hatched where the lane is slower than the baseline, which is a line at 1."""
    for row, (_, estimate) in enumerate(found):
        slower = estimate is not None and estimate.median < 1
        words = "" if estimate is None else f"{estimate.median:.2f}"
        colour, hatch = (_SLOWER, "///") if slower else (OURS, "")
        bar(axes, row, estimate, colour, 0.66, words, hatch, small)
    label_rows(axes, [label for label, _ in found])
    axes.axvline(1.0, color=LINE, linewidth=1)


def bar(
    axes: Axes, row: float, estimate: MedianInterval | None, colour: str, height: float, words: str, hatch: str = "",
    small: bool = False,
) -> None:
    """A median with its interval as a whisker, and words after it."""
    if estimate is None:
        return
    axes.barh(row, estimate.median, height, color=colour, hatch=hatch, edgecolor="white")
    if estimate.low is not None and estimate.high is not None:
        axes.plot([estimate.low, estimate.high], [row, row], color=LINE, linewidth=1.4, marker="|", markersize=5)
    clear = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # the line at 1 does not cross it
    axes.annotate(words, (_end(estimate), row), (5, 0), textcoords="offset points", va="center",
                  fontsize=8 if small else 10, color=LINE, bbox=clear)


def _end(estimate: MedianInterval | None) -> float:
    """How far to the right a bar reaches, its whisker included."""
    return 0.0 if estimate is None else max(estimate.median, estimate.high or 0.0)


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), [short_name(label) for label in labels])
    axes.set_ylim(len(labels) - 0.45, -0.55)


def label_axis(axes: Axes, label: str, end: float) -> None:
    axes.set_xlabel(label)
    axes.set_xlim(0, max(end, 1.1))
    axes.grid(axis="x", color="#dddddd")


def short_name(label: str) -> str:
    return one_line(label, _LABEL)


def _spread(report: Report) -> str:
    """What the whiskers are."""
    estimates = [f.rate for f in report.results.by_task() if f.rate and f.rate.coverage]
    if not estimates:
        return "one repeat"
    return f"median and {min(e.coverage for e in estimates):.0%} interval of {report.asked.repeats} repeats"
