"""Numbers that are read from the back of a room."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Digits, Static

from spec_tui.tui.widgets.strip_panel import Pane


class LargeNumbers(Pane):
    """Large numbers side by side, each over its name; hidden unless its screen presents. ``names``: of the numbers."""

    SCOPED_CSS = False  # it depends on the screen's class
    DEFAULT_CSS = """
    LargeNumbers { height: 4; display: none; padding: 0 2; layout: horizontal; }
    .presenting LargeNumbers { display: block; }
    .presenting.-tall LargeNumbers { margin: 1 0; }
    LargeNumbers Vertical { width: 1fr; height: 4; layout: vertical; }
    LargeNumbers Digits { width: 1fr; height: 3; color: $primary; text-style: bold; }
    LargeNumbers Static { height: 1; color: $tok-prompt; }
    """

    def __init__(self, names: Sequence[str], **kwargs) -> None:
        super().__init__(**kwargs)
        self._names = names

    def compose(self) -> ComposeResult:
        for name in self._names:
            with Vertical():
                yield Digits("")
                yield Static(name, markup=False)

    def show(self, *values: object) -> None:
        """Show these, in the order of the names."""
        for digits, value in zip(self.query(Digits), values):
            digits.update(str(value))
