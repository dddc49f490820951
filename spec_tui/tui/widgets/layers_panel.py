"""The layers of the target when it drafts for itself: which run, which are left out and why, and whether that pays."""

from __future__ import annotations

from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.layers_view import LayersView
from spec_tui.tui.widgets import layers_rows
from spec_tui.tui.widgets.strip_panel import Row, StripPanel


class LayersPanel(HasActions, StripPanel, can_focus=True):
    """Draws a ``LayersView``; its keys move the rules of the next answer."""

    HELP = ("One cell a sublayer: ■ drafting runs it, ▣ one of the last n, which stay; left out: c for its cosine, i "
            "as one of every m-th, b for both, s by a search. The next answer: □ will run it, capitals leave it out.")
    ACTIONS = (
        Action(id="layers.alpha-less", run="screen.rule('alpha', -1)", keys="left", label="α",
               help="Lower the threshold α: the next answer drafts with fewer attention sublayers"),
        Action(id="layers.alpha-more", run="screen.rule('alpha', 1)", keys="right", label="α",
               help="Raise the threshold α: with more of them"),
        Action(id="layers.m-less", run="screen.rule('m', -1)", keys="down", label="m",
               help="Leave out every m-th layer: more of them"),
        Action(id="layers.m-more", run="screen.rule('m', 1)", keys="up", label="m", help="Fewer of them"),
        Action(id="layers.n-less", run="screen.rule('n', -1)", keys="minus", label="n",
               help="Fewer of the last layers are kept whatever the rules say"),
        Action(id="layers.n-more", run="screen.rule('n', 1)", keys="plus,equals_sign", label="n",
               help="More of them"),
        Action(id="layers.measure", run="screen.measure_layers", keys="enter", label="Measure",
               help="Measure the cosines with the prompt that is typed, else the last one, without an answer"),
    )

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._look = LayersView()

    def show_look(self, look: LayersView) -> None:
        """Show this."""
        self._look = look
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        return layers_rows.rows(self._look, width, height)
