"""What the dialogs share: a box with a title, esc closes it."""

from __future__ import annotations

from typing import TypeVar

from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen

from spec_tui.tui.actions import Action, HasActions

Result = TypeVar("Result")



class Box(Vertical):
    """The frame of a dialog; its titles are plain text, never markup."""

    def __init__(self, title: str, subtitle: str, **kwargs) -> None:
        super().__init__(classes="box", **kwargs)
        self.border_title = Content(title)
        self.border_subtitle = Content(subtitle)


class SpecModal(HasActions, ModalScreen[Result]):
    """A dialog that esc closes without a result."""

    CSS_PATH = "modal.tcss"
    ACTIONS = (
        Action(id="dialog.close", run="close", keys="escape", label="Close", footer=True,
               help="Close without a change"),
    )

    def action_close(self) -> None:
        self.dismiss(None)
