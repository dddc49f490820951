"""A field of one line that draws any text harmless."""

from __future__ import annotations

from rich.highlighter import Highlighter
from rich.text import Text
from textual.widgets import Input

from spec_tui.present.text import one_line


class _Clean(Highlighter):
    def highlight(self, text: Text) -> None:
        text.plain = one_line(text.plain)


class CleanInput(Input):
    """An input whose value may come from a file or another program: it keeps the value and draws it as a label."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, highlighter=_Clean(), **kwargs)
