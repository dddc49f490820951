"""Why an answer was faster or slower than without drafts, in sentences of its own numbers."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from engines.report.run_state import RunState
from spec_tui.present.speed_explained import explanation
from spec_tui.present.text import one_line
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, SpecModal


class ExplainScreen(SpecModal[None]):
    """What ``spec-tui run --explain`` says, of an answer of the conversation."""

    CSS_PATH: ClassVar = ["modal.tcss", "explain.tcss"]
    word_here = "speed-up"
    ACTIONS = (Action(id="explain.close", run="close", keys="w,q", label="Close", help="Close"),)

    def __init__(self, run: RunState, baseline: RunState | None) -> None:
        super().__init__()
        self._run, self._baseline = run, baseline

    def compose(self) -> ComposeResult:
        said = "\n\n".join(one_line(sentence) for sentence in explanation(self._run, self._baseline))
        with Box("why it was faster or slower", "esc closes"), VerticalScroll(id="scroll"):
            yield Static(Content(said), id="text", markup=False)

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()
