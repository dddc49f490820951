"""The command palette, which chooses once."""

from __future__ import annotations

from textual import on
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.message import Message
from textual.widgets import Input, OptionList


class Palette(CommandPalette):
    """At a second enter or click Textual's would close the screen below it, and run the command again."""

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _once(self, event: Message) -> None:
        if not self.is_active:
            event.stop()
            event.prevent_default()

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
