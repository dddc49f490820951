"""What a lesson names: papers with their links, and documents of this project, which open here."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Markdown

from spec_tui.learn.sources import Source
from spec_tui.tui.screens.modal import Box, ListScreen, PagedModal


class SourcesScreen(ListScreen[None]):
    """The list: enter opens a document, and copies the link of a paper.

    Args:
        sources: what is listed, at least one.
        first: the one to begin on.
    """

    word_here = "lesson"

    def __init__(self, sources: Sequence[Source], first: Source | None = None) -> None:
        self._sources = sources
        super().__init__(
            "sources of this lesson", "enter opens a document, copies a link · esc closes",
            [Content(one.title if one.text else one.name) for one in sources], list(map(_about, sources)),
            sources.index(first) if first is not None else 0)

    def chosen(self, number: int) -> None:
        one = self._sources[number]
        if text := one.text:
            self.app.push_screen(DocumentScreen(one.title, text))
        elif one.url:
            self.app.copy_to_clipboard(one.url)
            self.notify(f"copied: {one.url}", markup=False)
        else:
            self.notify("This document is not here.", markup=False)


class DocumentScreen(PagedModal[None]):
    """A document of this project, in Markdown."""

    word_here = "lesson"

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Box(self._title, "↑ ↓ scroll · esc closes"), VerticalScroll(id="scroll", can_focus=False):
            yield Markdown(self._text, open_links=False)


def _about(one: Source) -> Content:
    if not one.url:
        return Content.assemble((one.title, "bold"), "\n\n", (one.name, "$tok-prompt"))
    return Content.assemble(
        (one.title, "bold"), "\n\n", f"{one.authors} ({one.year})", "\n\n", (one.url, "$tok-prompt"))
