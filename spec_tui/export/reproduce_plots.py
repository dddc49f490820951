"""A reproduced table drawn: by measure and setting our bars, and what papers report as marks beside them."""

from __future__ import annotations

import warnings
from pathlib import Path

from engines.race.interval import MedianInterval
from engines.reproduce.measures import MEASURES
from engines.reproduce.reproduction import Cell, Reproduction
from spec_tui.export.bench_plots import LINE, OURS, SETTINGS, THEIRS, bar, label_axis, label_rows, panels
from spec_tui.present.text import one_line

_TITLE = 60


def draw(done: Reproduction, file: Path) -> bool:
    """Draw a panel for each measure in each setting; False where there is nothing to draw. Raises OSError."""
    from matplotlib import rc_context

    by_panel: dict[tuple[str, str], list[Cell]] = {}
    for cell in done.cells():
        by_panel.setdefault((cell.measure, cell.setting), []).append(cell)
    shown = {key: cells for key, cells in by_panel.items() if any(cell.here is not None for cell in cells)}
    if not shown:
        return False
    with warnings.catch_warnings(), rc_context(SETTINGS):
        warnings.simplefilter("ignore")  # letters that the font lacks become boxes
        rows = len(done.entry.rows)
        figure, grid = panels(len(shown), 1, 7.5, len(shown) * (1.2 + 0.36 * rows))
        for axes, ((measure, setting), cells) in zip(grid, shown.items()):
            _panel(axes, measure, cells)
            axes.set_title(one_line(f"{measure}, {setting}", _TITLE), fontsize=10, loc="left")
        figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
    return True


def _panel(axes, measure: str, cells: list[Cell]) -> None:
    write, most = MEASURES[measure].write, 0.0
    for row, cell in enumerate(cells):
        values = [figure.value for figure in cell.theirs]
        if cell.here is not None:
            bar(axes, row, cell.interval or MedianInterval.of([cell.here]), OURS, 0.6, write(cell.here), small=True)
        axes.plot(values, [row] * len(values), linestyle="none", marker="D", markersize=5, color=THEIRS,
                  markeredgecolor=LINE, markeredgewidth=0.6)
        most = max(most, cell.here or 0.0, *values, 0.0)
    label_rows(axes, [cell.row for cell in cells])
    label_axis(axes, "bars: here; diamonds: published, on other models", most * 1.18)
    axes.set_xlim(0, most * 1.18 or 1)
