"""What the dialogs share: a box with a title, esc closes it; the dialog with a long text; the list to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Click
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import OptionList, Static

from spec_tui.present.text import cells, one_line, wrap
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.chat_actions import APPLICATION

Result = TypeVar("Result")
_CORNERS = 6  # columns of a frame beside its titles
_BESIDE = 16  # columns that words beside a name need


class Box(Vertical):
    """The frame of a dialog; its titles are plain text, never markup."""

    def __init__(self, title: str, subtitle: str, **kwargs) -> None:
        super().__init__(classes="box", **kwargs)
        self.border_title = Content(title)
        self.show_keys(subtitle)

    def show_keys(self, words: str) -> None:
        """What keys do, between " · ": where there is no room for all, those before the last one give way."""
        self._keys = words
        self._fit_keys()

    def _fit_keys(self) -> None:
        parts = self._keys.split(" · ")
        while len(parts) > 1 and self.outer_size and cells(" · ".join(parts)) > self.outer_size.width - _CORNERS:
            del parts[-2]
        self.border_subtitle = Content(" · ".join(parts))

    def on_resize(self) -> None:
        self._fit_keys()


class SpecModal(HasActions, ModalScreen[Result]):
    """A dialog that esc closes without a result. It binds the application's keys itself, because Textual does not pass
    keys from a dialog on to the application."""

    CSS_PATH = "modal.tcss"
    ACTIONS = (
        Action(id="dialog.close", run="close", keys="escape", label="Close", footer=True,
               help="Close without a change"),
        *(replace(action, id=f"dialog.{action.id}", footer=False, palette="") for action in APPLICATION if action.keys),
    )

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close it, and first what lies above it, which Textual would close in its place; only once."""
        screens = self.app.screen_stack
        if self not in screens:
            return AwaitComplete()
        for above in reversed(screens[screens.index(self) + 1 :]):
            above.dismiss(None)
        return super().dismiss(result)

    def action_close(self) -> None:
        self.dismiss(None)

    def tell(self, where: str, words: Content | str, wrong: bool) -> None:
        """Say this in a line of the dialog."""
        line = self.query_one(where, Static)
        line.update(words)
        line.set_class(wrong, "wrong")


def turn_page(panel: Widget, step: int) -> None:
    """Scroll a panel by a page; its last two lines stay in sight."""
    panel.scroll_relative(y=step * max(1, panel.size.height - 2), animate=False)


class TextModal(SpecModal[Result]):
    """A dialog with a long text, which scrolls. A subclass gives the text in ``text``; ``FRAME`` holds its title, and
    what keys do."""

    FRAME: ClassVar = ("", "esc closes")

    def compose(self) -> ComposeResult:
        with Box(*self.FRAME), VerticalScroll(id="scroll"):
            yield Static("", id="text", markup=False)

    def on_mount(self) -> None:
        self.lay_out()

    def on_resize(self) -> None:
        self.call_after_refresh(self.lay_out)

    def lay_out(self) -> None:
        """Show the text as it is now."""
        shown = self.query_one("#text", Static)
        shown.update(self.text(shown.size.width or 90))

    def text(self, width: int) -> Content:
        """The text, for so many columns."""
        raise NotImplementedError


class PagedModal(SpecModal[Result]):
    """A dialog in which the arrow keys scroll by pages, wherever the focus is."""

    ACTIONS = (
        Action(id="paged.down", run="scroll(1)", anywhere="down,pagedown", label="Down", help="Further down"),
        Action(id="paged.up", run="scroll(-1)", anywhere="up,pageup", label="Up", help="Further up"),
    )

    def action_scroll(self, step: int) -> None:
        turn_page(self.query_one("#scroll"), step)


class DescribedList(OptionList):
    """A list whose marked line is described beside it: a click on another line marks that, a second one chooses it."""

    async def _on_click(self, event: Click) -> None:
        clicked = event.style.meta.get("option")
        if clicked is not None and clicked != self.highlighted:
            event.prevent_default()
            if not self.get_option_at_index(clicked).disabled:
                self.highlighted = clicked


class Description(VerticalScroll, can_focus=False):
    """What there is to say of the marked line of a list."""

    def __init__(self, words: Content | str = "") -> None:
        self.text = Static(words, id="about", markup=False)
        super().__init__(self.text)


class DescribedModal(SpecModal[Result]):
    """A dialog with a list and a ``Description``."""

    ACTIONS = (
        Action(id="described.more", run="read(1)", anywhere="pagedown", label="Read on", palette="",
               help="The rest of the description", when=lambda screen: bool(screen.query(Description))),
        Action(id="described.less", run="read(-1)", anywhere="pageup", label="Read back", palette="",
               help="The beginning of the description", when=lambda screen: bool(screen.query(Description))),
    )

    @property
    def listed(self) -> OptionList:
        """Its list."""
        return self.query_one(OptionList)

    @property
    def here(self) -> str | None:
        """Id of the marked line."""
        option = self.listed.highlighted_option
        return option and option.id

    def describe(self, words: Content | str) -> None:
        """Say this of the marked line."""
        self.query_one(Description).text.update(words)

    def action_read(self, step: int) -> None:
        turn_page(self.query_one(Description), step)

    def on_option_list_option_highlighted(self) -> None:
        for panel in self.query(Description):
            panel.scroll_home(animate=False)


def fact(name: str, words: str, column: int, width: int) -> Content:
    """A name, as wide as its column, and what it is, folded beside it to a width in columns; where that is narrow,
    below it."""
    beside = width - column >= _BESIDE
    folded = wrap(one_line(words), max(12, width - column if beside else width - 1)) or [""]
    lead = f"{name:<{column}}" if beside else f"{name}\n "
    return Content.assemble((lead, "$tok-prompt"), f"\n{'':{column if beside else 1}}".join(folded))


class ListScreen(DescribedModal[Result]):
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
                yield Description(self._about[self._first])

    def on_mount(self) -> None:
        self.listed.focus()
        self.listed.highlighted = self._first

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._about:
            self.describe(self._about[event.option_index])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if self.is_active:  # a second enter or click may come before the first one's screen
            self.chosen(event.option_index)

    def chosen(self, number: int) -> None:
        """Enter or a click on a line."""
        raise NotImplementedError
