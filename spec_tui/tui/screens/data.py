"""The datastores at hand: what is in them, whether they fit the model, which are searched for the next answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engines.errors import SpecError
from engines.events import Ready
from engines.sources.meter import in_bytes
from spec_tui.text import one_line
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.settings import Settings, stores

if TYPE_CHECKING:
    from engines.datastores.places import Entry

HINT = "space chooses · enter uses them · esc closes"
NONE = """There are no datastores yet.

spec-tui datastore build NAME --from FILES makes one; NAME python-stdlib is built when it is first searched."""


class DataScreen(SpecModal[Settings]):
    """Gives back the settings with the datastores chosen, None if closed."""

    CSS_PATH: ClassVar = ["modal.tcss", "data.tcss"]
    BINDINGS: ClassVar = [
        Binding("space", "choose", "Choose", id="data.choose", tooltip="Search this one, or not"),
        Binding("d,q", "close", "Close", id="data.close", show=False, tooltip="Close without a change"),
    ]

    def __init__(self, settings: Settings, ready: Ready | None) -> None:
        super().__init__()
        self.settings, self.ready = settings, ready
        self.chosen = list(settings.datastores)
        self.entries: dict[str, Entry | None] = {}
        self.unfinished: list[str] = []

    def compose(self) -> ComposeResult:
        with Box("datastores", HINT):
            with Horizontal(id="pair"):
                yield OptionList(id="stores")
                with VerticalScroll(id="facts", can_focus=False):
                    yield Static("", id="about", markup=False)
            yield Static("", id="chosen", markup=False)

    def on_mount(self) -> None:
        from engines.datastores import places

        listed = self.query_one(OptionList)
        self.entries = dict.fromkeys(stores(self.ready))  # offered ones, which are built when they are searched
        at_hand = places.listing()
        self.entries |= {entry.name: entry for entry in at_hand if not entry.unfinished}
        self.unfinished = [entry.name for entry in at_hand if entry.unfinished]
        listed.add_options([Option(self._label(name), id=name) for name in self.entries])
        listed.focus()
        if self.entries:
            listed.highlighted = 0
        else:
            self.query_one("#about", Static).update(NONE)
        self._draw_chosen()

    def _label(self, name: str) -> Content:
        state, style = self._state(name)
        mark = "● " if name in self.chosen else "○ "
        return Content.assemble((mark, "$primary"), (f"{one_line(name, 20):<20} ", "bold" if state == "" else ""),
                                (state or self._kind(name), style))

    def _kind(self, name: str) -> str:
        entry = self.entries[name]
        return "built when used" if entry is None else entry.manifest.kind

    def _state(self, name: str) -> tuple[str, str]:
        """What keeps a datastore from being searched in a word, "" for nothing; and its style."""
        entry = self.entries[name]
        if entry is not None and entry.problem:
            return "damaged", "bold $error"
        if self.ready is not None and name not in stores(self.ready):
            return "does not fit", "$tok-prompt"
        return "", "$tok-prompt"

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#about", Static).update(about(event.option.id, self.entries[event.option.id], self.ready))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Use those that are marked."""
        try:
            self.dismiss(self.settings.with_datastores(self.chosen, self.ready))
        except SpecError as error:
            self._say(f"{error.message}: {error.hint}", wrong=True)

    def action_choose(self) -> None:
        listed = self.query_one(OptionList)
        if listed.highlighted is not None:
            name = listed.get_option_at_index(listed.highlighted).id
            self._toggle(name)
            listed.replace_option_prompt(name, self._label(name))

    def _toggle(self, name: str) -> None:
        state, _ = self._state(name)
        if name in self.chosen:
            self.chosen.remove(name)
        elif state:
            self._say(f"{name} cannot be searched: it {'is ' * (state == 'damaged')}{state}", wrong=True)
            return
        else:
            self.chosen.append(name)
        self._draw_chosen()

    def _draw_chosen(self) -> None:
        names = ", ".join(self.chosen) or "those that ship with the program"
        engine = self.settings.resolved(self.ready)
        less = "" if self.settings.retrieves(self.ready) else f"; {engine} searches none, rest does (ctrl+e)"
        left = f" · unfinished builds: {', '.join(self.unfinished)}" if self.unfinished else ""
        self._say(f"next answers search {names}{less}{left}")

    def _say(self, words: str, wrong: bool = False) -> None:
        line = self.query_one("#chosen", Static)
        line.update(one_line(words))
        line.set_class(wrong, "wrong")


def about(name: str, entry: Entry | None, ready: Ready | None) -> Content:
    """What is known of a datastore."""
    lines = [Content.assemble((one_line(name), "bold")), Content("")]
    for title, words in facts(name, entry, ready):
        lines.append(Content.assemble((f"{title:<11}", "$tok-prompt"), one_line(words)))
    return Content("\n").join(lines)


def facts(name: str, entry: Entry | None, ready: Ready | None) -> list[tuple[str, str]]:
    """Name and value of what is known of a datastore; without an entry it is offered and not built yet."""
    kind = stores(ready).get(name)
    fits = "not known before the model is loaded" if ready is None else (
        f"yes: {kind}" if kind else "no, or built since the model was loaded (then start again)")
    if entry is None:
        return [("contents", "the standard library of this Python; built in seconds when it is searched"),
                ("fits", fits)]
    if entry.manifest is None:
        return [("damaged", entry.problem or "it cannot be read"),
                ("way out", "" if entry.shipped else f"spec-tui datastore remove {name}, then build it again")]
    m = entry.manifest
    rows = [
        ("kind", m.kind), ("tokens", f"{m.tokens:,} in {m.documents:,} documents"), ("size", in_bytes(m.size)),
        ("vocabulary", f"{m.vocab_size:,} tokens"), ("fits", fits), ("built", m.created),
        ("whose", "ships with the program" if entry.shipped else "yours"),
    ]
    if m.model is not None:
        rows[2:2] = [("keys", f"{m.keys:,}, hidden states of {m.model.name}")]
    sources = m.parameters.get("sources")
    if isinstance(sources, dict):
        told = {key: value for key, value in sources.items() if key != "digest" and value not in ("", [])}
        sources = ", ".join(f"{key} {value}" for key, value in told.items())
    return rows + ([("sources", str(sources))] if sources else [])
