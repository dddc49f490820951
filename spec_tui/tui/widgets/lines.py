"""Single lines of the chat screen: the top line, headings, legend, status, telemetry."""

from __future__ import annotations

from spec_tui.tui.widgets.strip_panel import Row, Span, StripPanel
from spec_tui.tui.widgets.wrap import cells


class Lines(StripPanel):
    """Rows given from outside."""

    def show(self, *rows: Row) -> None:
        """Show these."""
        self._given = list(rows)
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        return [clip(row, width) for row in getattr(self, "_given", [])]


class Sides(StripPanel):
    """One row: something at the left, something at the right. The left side gives way first, then the right one's end.

    ``heads`` names the widget whose heading this is.
    """

    heads = ""

    @property
    def titled_focus(self) -> bool:
        focused = self.screen.focused
        return bool(self.heads) and focused is not None and focused.id == self.heads

    def show(self, left: Row, right: Row = ()) -> None:
        """Show these."""
        self._left, self._right = left, right
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        left, right = getattr(self, "_left", ()), getattr(self, "_right", ())
        if not right:
            return [clip(left, width)]
        room = width - size(left) - size(right)
        if room < 1:
            kept = width - size(right) - 2
            if kept < 12:
                return [clip(right, width)]
            left = clip(left, kept)
            room = width - size(left) - size(right)
        return [[*left, (" " * room, "text"), *right]]


def size(row: Row) -> int:
    """Columns of a row."""
    return sum(cells(text) for text, _ in row)


def clip(row: Row, width: int) -> Row:
    """A row no wider than this."""
    out: list[Span] = []
    for text, style in row:
        room = width - size(out)
        if cells(text) > room:
            while text and cells(text) > max(0, room - 1):
                text = text[:-1]
            return [*out, (text + "…", style)] if room > 0 else out
        out.append((text, style))
    return out
