"""What the dialogs share: a box with a title, esc closes it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen

Result = TypeVar("Result")


class Box(Vertical):
    """The frame of a dialog; its titles are plain text, never markup."""

    def __init__(self, title: str, subtitle: str, **kwargs) -> None:
        super().__init__(classes="box", **kwargs)
        from textual.content import Content

        self.border_title = Content(title)
        self.border_subtitle = Content(subtitle)


class SpecModal(ModalScreen[Result]):
    """A dialog that esc closes without a result."""

    CSS_PATH = "modal.tcss"
    BINDINGS: ClassVar = [Binding("escape", "close", "Close", id="dialog.close", tooltip="Close without a change")]

    def action_close(self) -> None:
        self.dismiss(None)
