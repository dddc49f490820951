"""Tokens over time, all lanes on common axes that start at zero."""

from __future__ import annotations

from collections.abc import Sequence

from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel, title_row
from spec_tui.tui.widgets.strip_plot import Cell, lines, nice_top

Points = Sequence[tuple[float, float]]
_LOWEST = 4  # rows: heading, two of the plot, axis


class RacePlot(StripPanel):
    """Draws lanes' points, each lane with its number."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.series: tuple[tuple[str, Points], ...] = ()
        self.right = self.most = 0.0
        self.state = ""

    def show(self, series: Sequence[tuple[str, Points]], right: float, most: float, state: str = "") -> None:
        """Draw these (mark, points) up to ``right`` seconds and ``most`` tokens."""
        self.series, self.right, self.most, self.state = tuple(series), right, most, state
        self.update_rows()

    @property
    def titled_focus(self) -> bool:
        return False

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
            rows.append([(label.rjust(gutter), "muted"), *_spans(row)])
        end = f"{self.right:.3g} s"
        rows.append([("└".rjust(gutter), "muted"), ("─" * (room - len(end) - 1), "rule"), (f" {end}", "muted")])
        return rows


def _spans(cells: Sequence[Cell]) -> list[Span]:
    """One span for each stretch of one lane."""
    out: list[Span] = []
    for char, number in cells:
        style = f"lane-{number + 1}" if number >= 0 else "text"
        if out and out[-1][1] == style:
            out[-1] = (out[-1][0] + char, style)
        else:
            out.append((char, style))
    return out
