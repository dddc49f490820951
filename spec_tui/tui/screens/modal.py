"""What the dialogs share: a box with a title, esc closes it; and the dialog that is a list to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

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
        Action(id="dialog.help", run="app.help", keys="f1", label="Help", palette="", help="All keys"),
    )

    def action_close(self) -> None:
        self.dismiss(None)


class DescribedList(OptionList):
    """A list whose marked line is described beside it: a click on another line marks that, a second one chooses it."""

    async def _on_click(self, event: Click) -> None:
        clicked = event.style.meta.get("option")
        if clicked is not None and clicked != self.highlighted:
            event.prevent_default()
            if not self.get_option_at_index(clicked).disabled:
                self.highlighted = clicked


class ListScreen(SpecModal[Result]):
    """A list, and beside it what there is to say of the line under the cursor. A subclass says in ``chosen`` what enter
    does.

    Args:
        title, keys: stand in the frame.
        lines: what is listed.
        about: a text for each line; empty for a list without any.
        first: number of the line to begin on.
    """

    def __init__(
        self, title: str, keys: str, lines: Sequence[Content], about: Sequence[Content] = (), first: int = 0
    ) -> None:
        super().__init__()
        self._frame, self._lines, self._about, self._first = (title, keys), lines, about, first

    def compose(self) -> ComposeResult:
        with Box(*self._frame), Horizontal(id="pair"):
            kind = DescribedList if self._about else OptionList
            yield kind(*self._lines, id="list", classes="" if self._about else "alone")
            if self._about:
                yield Static("", id="about", markup=False)

    def on_mount(self) -> None:
        self.options = self.query_one(OptionList)
        self.options.focus()
        self.options.highlighted = self._first

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._about:
            self.query_one("#about", Static).update(self._about[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.chosen(event.option_index)

    def chosen(self, number: int) -> None:
        """Enter or a click on a line."""
        raise NotImplementedError
