"""The showcase: pick a prompt, see what it is for, send it."""

from __future__ import annotations

from textual.content import Content

from spec_tui.learn.showcase_prompts import SHOWCASES
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import ListScreen


class ShowcaseScreen(ListScreen[tuple[str, bool]]):
    """Gives back (prompt, whether to send it at once), None if closed. ``does``: what enter does."""

    word_here = "example prompts"

    ACTIONS = (
        Action(id="showcase.fill", run="fill", keys="space", label="Fill in", footer=True,
               help="Put it in the prompt without sending it"),
    )

    def __init__(self, does: str) -> None:
        super().__init__(
            "examples", f"enter {does} · space: only type it · esc closes",
            [Content.assemble((f"{item.kind:<12}", "$tok-prompt"), item.name) for item in SHOWCASES],
            [Content.assemble((item.shows, "bold"), "\n\n", (item.prompt, "$tok-prompt")) for item in SHOWCASES])

    def chosen(self, number: int) -> None:
        self.dismiss((SHOWCASES[number].prompt, True))

    def action_fill(self) -> None:
        if self.listed.highlighted is not None:
            self.dismiss((SHOWCASES[self.listed.highlighted].prompt, False))
