"""Choose what a file is made of: the answer as trace, document or recording, or the screen as a picture."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from engines.report.run_state import RunState
from engines.report.traces import Trace, written
from spec_tui.export.formats import FORMATS, ExportOptions
from spec_tui.tui.screens.modal import Box, SpecModal

PICTURE = "svg"
_ENDINGS = {"trace": "jsonl"}
CHOICES = {
    "trace": "the run's events, for spec-tui replay",
    **{name: form.words for name, form in FORMATS.items()},
    PICTURE: "picture of the screen as it is",
}
"""What there is to choose: name and words."""


class ExportScreen(SpecModal[str]):
    """Gives back a name of ``CHOICES``, None if closed.

    Args:
        answer: there is an answer to be saved.
    """

    CSS_PATH: ClassVar = ["modal.tcss", "export.tcss"]

    def __init__(self, answer: bool) -> None:
        super().__init__()
        self._names = list(CHOICES) if answer else [PICTURE]

    def compose(self) -> ComposeResult:
        with Box("export", "enter saves in a file of its own · esc closes"):
            yield OptionList(*[Option(_label(name)) for name in self._names], id="forms")

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._names[event.option_index])


def _label(name: str) -> Content:
    return Content.assemble((f"{name:<7}", "bold"), (CHOICES[name], "$tok-prompt"))


def document(run: RunState, name: str) -> tuple[bytes, str]:
    """An answer in a form of ``CHOICES`` that is not the picture, and the file's ending."""
    events = tuple(run.events)
    if name == "trace":
        return written(events), _ENDINGS[name]
    return FORMATS[name].make(Trace(events), "answer", ExportOptions()).encode("utf-8", "backslashreplace"), name
