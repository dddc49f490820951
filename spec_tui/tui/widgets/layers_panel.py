"""The layers of the target when it drafts for itself: which run, which are left out and why, and whether that pays."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding

from spec_tui.tui.layers_view import LayersView
from spec_tui.tui.widgets import layers_rows
from spec_tui.tui.widgets.strip_panel import Row, StripPanel


class LayersPanel(StripPanel, can_focus=True):
    """Draws a ``LayersView``; its keys move the rules of the next answer."""

    HELP = ("One cell a sublayer: ■ drafting runs it, ▣ one of the last n, which stay; left out: c for its cosine, i "
            "as one of every m-th, b for both, s by a search. The next answer: □ will run it, capitals leave it out.")
    BINDINGS: ClassVar = [
        Binding("left", "screen.rule('alpha', -1)", "α", id="layers.alpha-less", show=False,
                tooltip="Lower the threshold α: the next answer drafts with fewer attention sublayers"),
        Binding("right", "screen.rule('alpha', 1)", "α", id="layers.alpha-more", show=False,
                tooltip="Raise the threshold α: with more of them"),
        Binding("down", "screen.rule('m', -1)", "m", id="layers.m-less", show=False,
                tooltip="Leave out every m-th layer: more of them"),
        Binding("up", "screen.rule('m', 1)", "m", id="layers.m-more", show=False, tooltip="Fewer of them"),
        Binding("minus", "screen.rule('n', -1)", "n", id="layers.n-less", show=False, key_display="-",
                tooltip="Fewer of the last layers are kept whatever the rules say"),
        Binding("plus,equals_sign", "screen.rule('n', 1)", "n", id="layers.n-more", show=False, key_display="+",
                tooltip="More of them"),
        Binding("enter", "screen.measure_layers", "Measure", id="layers.measure", show=False,
                tooltip="Measure the cosines with the prompt that is typed, else the last one, without an answer"),
    ]

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._look = LayersView()

    def show_look(self, look: LayersView) -> None:
        """Show this."""
        self._look = look
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        return layers_rows.rows(self._look, width, height)
