"""The prompt: enter sends, ctrl+j breaks the line, up and down at the edges bring back what was asked before."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from spec_tui.present.text import sanitise
from spec_tui.tui.actions import Action, HasActions


class PromptBox(HasActions, TextArea):
    """A text area that sends. What is pasted or put in is made harmless first, so that what is seen is what is sent."""

    HELP = "Type a prompt; a line that starts with / is a command, tab completes it."
    ACTIONS = (
        Action(id="prompt.send", run="send", keys="enter", label="Send", footer=True, help="Send the prompt"),
        Action(id="prompt.newline", run="newline", keys="ctrl+j,shift+enter", label="New line", footer=True,
               help="Break the line"),
        Action(id="prompt.showcase", run="screen.showcase", keys="ctrl+o", label="Showcase", footer=True,
               help="Prompts that show something"),
        Action(id="prompt.complete", run="complete", keys="tab", label="Complete",
               help="Complete a command, else go to the next panel"),
        Action(id="prompt.older", run="older", keys="up", label="Older", help="On the first line: the prompt before"),
        Action(id="prompt.newer", run="newer", keys="down", label="Newer", help="On the last line: the next prompt"),
    )

    class Sent(Message):
        """Enter was pressed; the text stays until the receiver takes it."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, completer: Callable[[str], list[str]], **kwargs) -> None:
        super().__init__(
            "", soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, tab_behavior="focus", **kwargs
        )
        self._completer = completer
        self._history: list[str] = []
        self._at = 0
        self._draft = ""
        self._choices: list[str] = []

    def put(self, text: str) -> None:
        """Show this text, cursor at its end."""
        self.text = sanitise(text).replace("\r", "")
        self.move_cursor(self.document.end)

    def taken(self, sent: str) -> None:
        """This text was accepted: remember it and take it out of the box; what was typed since stays."""
        if sent.strip() and (not self._history or self._history[-1] != sent):
            self._history.append(sent)
        self._at, self._draft = len(self._history), ""
        if self.text.startswith(sent):
            self.put(self.text[len(sent) :])

    async def _on_paste(self, event: events.Paste) -> None:
        event.text = sanitise(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        event.prevent_default()  # Textual calls the handlers of base classes too, and would insert the text twice
        await super()._on_paste(event)

    async def _on_key(self, event: events.Key) -> None:
        # Here and not by a priority binding: that would overtake characters typed just before.
        keys = {"enter": self.action_send, "ctrl+j": self.action_newline, "shift+enter": self.action_newline}
        if event.key not in ("tab", "shift+tab"):
            self._choices = []
        if action := keys.get(event.key):
            event.stop()
            event.prevent_default()
            action()
            return
        await super()._on_key(event)

    def action_send(self) -> None:
        self.post_message(self.Sent(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_complete(self) -> None:
        """Tab goes round the completions of a command; without one it moves the focus."""
        if len(self._choices) > 1 and self.text in self._choices:
            index = (self._choices.index(self.text) + 1) % len(self._choices)
        else:
            self._choices, index = self._completer(self.text), 0
        if self._choices:
            self.put(self._choices[index])
        elif not self.text.startswith("/"):
            self.screen.focus_next()

    def action_older(self) -> None:
        self._browse(-1, self.cursor_location[0] == 0, self.action_cursor_up)

    def action_newer(self) -> None:
        self._browse(1, self.cursor_location[0] == self.document.line_count - 1, self.action_cursor_down)

    def _browse(self, step: int, at_edge: bool, otherwise: Callable[[], None]) -> None:
        target = self._at + step
        if not at_edge or not 0 <= target <= len(self._history):
            otherwise()
            return
        if self._at == len(self._history):
            self._draft = self.text
        self._at = target
        self.put(self._history[target] if target < len(self._history) else self._draft)
