"""A scroll bar that costs nothing while it stands still, and little when it moves.

Textual asks every visible widget for all its lines in each frame, and a scroll bar answers by way of a style cache and
a console, which takes longer than the line of text that the frame is about.
"""

from __future__ import annotations

from math import ceil

from rich.segment import Segment
from textual.color import Color
from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip


class CachedScrollbar:
    """The lines of a vertical scroll bar, kept until it looks otherwise; stands in for its ``render_lines``."""

    def __init__(self, bar: ScrollBar) -> None:
        self._bar = bar
        self._of: tuple = ()
        self._strips: list[Strip] = []

    def __call__(self, crop: Region) -> list[Strip]:
        bar = self._bar
        colors, filters = self._colors(), tuple(bar.get_line_filters())
        of = (bar.size, bar.window_virtual_size, bar.window_size, bar.position, colors, filters)
        if of != self._of:
            self._of, self._strips = of, self._draw(*colors)
        strips = self._strips[crop.y : crop.bottom]
        if crop.column_span != (0, bar.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def _colors(self) -> tuple[Color, Color]:
        """Background and thumb, as the style sheet has them for what the mouse does."""
        bar, styles = self._bar, self._bar.parent.styles
        state = "_active" if bar.grabbed else "_hover" if bar.mouse_over else ""
        back = getattr(styles, "scrollbar_background" + state)
        if back.a < 1:
            back = bar.parent.background_colors[0] + back
        return back, back + getattr(styles, "scrollbar_color" + state)

    def _draw(self, back: Color, thumb: Color) -> list[Strip]:
        bar, (width, height) = self._bar, self._bar.size
        whole = ceil(bar.window_virtual_size)
        segments = bar.renderer.render_bar(
            size=height, virtual_size=whole, window_size=bar.window_size if bar.window_size < whole else 0,
            position=bar.position, thickness=width, vertical=True, back_color=back.rich_color,
            bar_color=thumb.rich_color,
        ).segments
        base = bar.rich_style
        strips = [Strip([Segment(text, base + style)], width) for text, style, _ in segments]
        for line_filter in bar.get_line_filters():
            strips = [strip.apply_filter(line_filter, back) for strip in strips]
        return strips
