"""Containers that draw nothing, and the line between them.

Textual draws every container under a changed widget again, frame by frame, although its children cover it. The
screen below paints the background once for all.
"""

from __future__ import annotations

from textual.containers import Container
from textual.geometry import Region
from textual.strip import Strip

from spec_tui.tui.widgets.strip_panel import Row, StripPanel


class Pane(Container):
    """Arranges its children; has no border, no background and no padding of its own."""

    def render_lines(self, crop: Region) -> list[Strip]:
        return []


class Divider(StripPanel):
    """A vertical line."""

    DEFAULT_CSS = "Divider { width: 2; height: 1fr; }"

    def rows(self, width: int, height: int) -> list[Row]:
        return [[("│ "[:width], "rule")]] * height
