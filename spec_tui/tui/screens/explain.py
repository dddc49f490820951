"""Why an answer was faster or slower than without drafts, in sentences of its own numbers."""

from __future__ import annotations

from textual.content import Content

from engines.report.run_state import RunState
from spec_tui.present.speed_explained import explanation
from spec_tui.present.text import one_line
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import TextModal


class ExplainScreen(TextModal[None]):
    """What ``spec-tui run --explain`` says, of an answer of the conversation."""

    FRAME = ("why it was faster or slower", "esc closes")
    word_here = "speed-up"
    ACTIONS = (Action(id="explain.close", run="close", keys="w,q", label="Close", help="Close"),)

    def __init__(self, run: RunState, baseline: RunState | None) -> None:
        super().__init__()
        self._run, self._baseline = run, baseline

    def text(self, width: int) -> Content:
        return Content("\n\n".join(map(one_line, explanation(self._run, self._baseline))))
