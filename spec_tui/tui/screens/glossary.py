"""The words and symbols that the screens use, engines and options among them, each in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from engines.methods import specs
from spec_tui.learn.glossary_entries import entries, meaning
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import GLYPHS
from spec_tui.tui.screens.help import row
from spec_tui.tui.screens.modal import Box, PagedModal, TextModal
from spec_tui.tui.widgets.clean_input import CleanInput


class GlossaryScreen(PagedModal[None], TextModal[None]):
    """A list that what is typed narrows down; ``wanted`` is looked for at first."""

    def __init__(self, wanted: str = "") -> None:
        super().__init__()
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        with Box("glossary", "type to search · ↑ ↓ scroll · esc closes"):
            yield CleanInput(self._wanted, placeholder="a word or a symbol", id="wanted", max_length=60)
            with VerticalScroll(id="scroll", can_focus=False):
                yield Static("", id="text", markup=False)

    def on_input_changed(self) -> None:
        self.lay_out()

    def lay_out(self) -> None:
        super().lay_out()
        self.query_one("#scroll").scroll_home(animate=False)

    def text(self, width: int) -> Content:
        return glossary_text(self.query_one(Input).value, width)


def search(wanted: str) -> Mapping[str, str]:
    """The words and marks of the glossary, the engines and their options in which this occurs: first the one that is
    called so, then those whose name begins with it."""
    wanted = wanted.strip().lower()
    known = {", ".join(entry.names): meaning(entry) for entry in dict.fromkeys(entries().values())}
    known |= {f"{spec.id}, {spec.title}": spec.summary for spec in specs()}
    known |= {f"{option.name} of {spec.id}": option.help for spec in specs() for option in spec.options}
    known |= {sign: f"On the screen: {words}." for sign, words in GLYPHS.items()}
    named = [name for name, words in known.items() if wanted in f"{name} {words}".lower()]

    def nearness(name: str) -> tuple[bool, bool]:
        own = [one.strip() for one in name.lower().split(",")]
        return wanted not in own, not any(one.startswith(wanted) for one in own)

    return {name: known[name] for name in sorted(named, key=nearness)}


def glossary_text(wanted: str, width: int) -> Content:
    """The entries that are wanted, wrapped to a width."""
    entries = search(wanted)
    if not entries:
        return Content(f"Nothing here is called ‹{one_line(wanted, 40)}›.")
    return Content("\n").join(map(partial(row, total=width), entries, entries.values()))
