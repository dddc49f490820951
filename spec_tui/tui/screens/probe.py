"""What a datastore has to say after a text: looked up while it is typed, as the engines would."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Input, Static

from engines.datastores.events import Refused
from engines.methods.options import Option
from spec_tui.present import shell_lines as command
from spec_tui.present.text import one_line
from spec_tui.tui.probe_view import lines
from spec_tui.tui.screens.modal import Box, SpecModal
from spec_tui.tui.widgets.field import Field

if TYPE_CHECKING:
    from spec_tui.tui.chat_session import ChatSession
    from spec_tui.tui.datastore_jobs import Question

EVERY = 0.05  # seconds between two looks
TEXT = Option("text", "", "What the draft would follow: the end of a context.")
PROMPT = Option("prompt", "", "The question that the text begins to answer; may be empty.")
EMPTY = """Type a text. Below it stands what would be drafted next, how often it follows there, and from where.

exact: the longest end of the text that occurs in the datastore, as rest looks it up.
by meaning: the model's hidden state after the text, as dresd looks it up."""


class ProbeScreen(SpecModal[None]):
    """Probes one datastore."""

    CSS_PATH: ClassVar = ["modal.tcss", "probe.tcss"]
    BINDINGS: ClassVar = [
        Binding("ctrl+y", "copy", "Copy", id="probe.copy", priority=True, tooltip="Copy the command line of this"),
        Binding("up", "scroll(-1)", "Up", id="probe.up", show=False, tooltip="Scroll"),
        Binding("down", "scroll(1)", "Down", id="probe.down", show=False, tooltip="Scroll"),
    ]

    def __init__(self, sitting: ChatSession, name: str) -> None:
        super().__init__()
        self.sitting, self.stock, self.store = sitting, sitting.stock, name
        self._wanted: Question | None = None
        self._shown: object = self.stock.probed  # of another time

    def compose(self) -> ComposeResult:
        with Box(f"probe {self.store}", "tab text, prompt · ↑ ↓ scroll · ctrl+y copy command · esc close"):
            yield Field(TEXT, "", classes="wide", id="probe-text")
            yield Field(PROMPT, "", classes="wide", id="probe-prompt")
            with VerticalScroll(id="found", can_focus=False):
                yield Static(EMPTY, id="lines", markup=False)
            yield Static("", id="hint", markup=False)

    def on_mount(self) -> None:
        self.query(Input).first().focus()
        self.set_interval(EVERY, self._look)

    @property
    def question(self) -> Question:
        """What is asked now."""
        text, prompt = (self.query_one(f"#probe-{field} Input", Input).value for field in ("text", "prompt"))
        return self.store, text, prompt if prompt.strip() else None

    def on_input_changed(self, event: Input.Changed) -> None:
        self._wanted = self.question

    def on_field_explained(self, event: Field.Explained) -> None:
        self._hint(event.words)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _hint(self, words: str) -> None:
        self.query_one("#hint", Static).update(one_line(words))

    def _look(self) -> None:
        if self._wanted is not None and not self.sitting.busy:
            wanted, self._wanted = self._wanted, None
            if wanted[1] or wanted[2]:
                self.stock.probe(wanted)
            else:
                self.query_one("#lines", Static).update(EMPTY)
        elif self._wanted is not None:
            self._hint(self.sitting.still)
        if self.stock.probed is not self._shown:
            self._shown = self.stock.probed
            self._draw()

    def _draw(self) -> None:
        found, shown = self.stock.probed, self.query_one("#lines", Static)
        if found is None or found is not self._shown or found.name != self.store or not any(self.question[1:]):
            return
        if isinstance(found, Refused):
            shown.update(Content.styled(f"{one_line(found.message)}.\n{one_line(found.hint)}", "$error"))
        else:
            shown.update(Content("\n").join(lines(found, shown.size.width or 70)))

    def action_scroll(self, step: int) -> None:
        self.query_one("#found", VerticalScroll).scroll_relative(y=step, animate=False)

    def action_copy(self) -> None:
        line = command.probe_line(*self.question, self.sitting.load_request)
        self.app.copy_to_clipboard(line)
        self._hint(f"copied: {line}")
