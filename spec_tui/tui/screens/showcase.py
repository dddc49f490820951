"""The showcase: pick a prompt, see what it is for, send it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from spec_tui.learn.showcase_prompts import SHOWCASES, Showcase
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, SpecModal


class ShowcaseScreen(SpecModal[tuple[str, bool]]):
    """Gives back (prompt, whether to send it at once), None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "showcase.tcss"]
    ACTIONS = (
        Action(id="showcase.fill", run="fill", keys="space", label="Fill in", footer=True,
               help="Put the prompt into the box, unsent"),
    )

    def compose(self) -> ComposeResult:
        keys = "enter asks in a new conversation · space fills the box · esc closes"
        with Box("showcase", keys), Horizontal(id="pair"):
            yield OptionList(*[Option(_label(item)) for item in SHOWCASES], id="list")
            yield Static("", id="about", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#about", Static).update(_about(SHOWCASES[event.option_index]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss((SHOWCASES[event.option_index].prompt, True))

    def action_fill(self) -> None:
        at = self.query_one(OptionList).highlighted
        if at is not None:
            self.dismiss((SHOWCASES[at].prompt, False))


def _label(item: Showcase) -> Content:
    return Content.assemble((f"{item.kind:<12}", "$tok-prompt"), item.name)


def _about(item: Showcase) -> Content:
    return Content.assemble((item.shows, "bold"), "\n\n", (item.prompt, "$tok-prompt"))
