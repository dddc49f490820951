"""The prompt: enter sends, ctrl+j breaks the line, up and down at the edges bring back what was asked before. What a
command may go on with is listed above it, a line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.document._edit import Edit
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option

from spec_tui.present.text import cells, sanitise
from spec_tui.tui.actions import EXAMPLES, Action, HasActions
from spec_tui.tui.widgets.strip_panel import shortened


class Choices(OptionList, can_focus=False):
    """What may be typed, above the prompt; hidden while there is nothing to choose."""

    DEFAULT_CSS = """
    Choices { display: none; height: auto; max-height: 9; border: none; padding: 0 1; background: $surface; }
    """

    def show(self, lines: Mapping[str, str], at: int = 0) -> None:
        """List whole lines, each with what it does; one of them is highlighted, which enter takes."""
        self.display = bool(lines)
        self.clear_options()
        if lines:
            room = max(20, self.app.size.width - 4)
            name = min(max(map(len, lines)), room // 2) + 2
            for line, words in lines.items():
                words = shortened(words, room - max(name, cells(line)))
                shown = Content.assemble((f"{line:<{name}}", "bold"), (words, "$tok-prompt"))
                self.add_option(Option(shown.truncate(room, ellipsis=True), id=line))
            self.highlighted = at

    @property
    def here(self) -> str | None:
        """The highlighted line; None while there is nothing to choose."""
        option = self.highlighted_option
        return option and option.id

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option in self.options:  # else it was taken already, or another text was typed
            self.screen.query_one(PromptBox).take(event.option.id)


class PromptBox(HasActions, TextArea):
    """A text area that sends. What is put in is made harmless first, as the application makes pastes, so that what is
    seen is what is sent."""

    ACTIONS = (
        Action(id="prompt.send", run="send", keys="enter", label="Send", footer=True, help="Send the prompt"),
        Action(id="prompt.newline", run="newline", keys="ctrl+j,shift+enter", label="New line", footer=True,
               help="Break the line"),
        Action(id="prompt.showcase", run="screen.showcase", keys="ctrl+o", label="Examples", footer=True,
               help=EXAMPLES),
        Action(id="prompt.complete", run="complete", keys="tab", label="Complete",
               help="Complete a command, else go to the next panel"),
        Action(id="prompt.clear", run="clear_all", keys="ctrl+u", label="Clear",
               help="Clear the text; ctrl+z brings it back"),
        Action(id="prompt.older", run="older", keys="up", label="Older",
               help="In a list of commands: up. On the first line: the previous prompt"),
        Action(id="prompt.newer", run="newer", keys="down", label="Newer",
               help="In a list of commands: down. On the last line: the next prompt"),
    )

    _between = False  # edits are undone or done again: the cursor may stand where there is no text

    @dataclass
    class Sent(Message):
        """Enter was pressed; the text stays until the receiver takes it."""

        text: str

    class Pasted(Message):
        """Something was pasted, and is in the text now."""

    def __init__(self, completer: Callable[[str], Mapping[str, str]], **kwargs) -> None:
        super().__init__(
            "", soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False, tab_behavior="focus", **kwargs
        )
        self._completer = completer
        self._history: list[str] = []
        self._at = 0
        self._draft = ""
        self._aside = ""
        self._tabbed: Mapping[str, str] = {}  # the lines that tab goes round
        self._listed = ""  # the text that the list above is for
        self._blinks: bool | None = None  # whether the cursor did, while it stands still

    # Textual measures a text that it undoes before it puts the cursor back (8.2.8): where a scrollbar goes then, the
    # cursor is looked up on a line that is gone. Here it is measured afterwards.
    def _undo_batch(self, edits: Sequence[Edit]) -> None:
        with self._measured_after():
            super()._undo_batch(edits)

    def _redo_batch(self, edits: Sequence[Edit]) -> None:
        with self._measured_after():
            super()._redo_batch(edits)

    @contextmanager
    def _measured_after(self) -> Iterator[None]:
        self._between = True
        try:
            yield
        finally:
            self._between = False
            self._rewrap_and_refresh_virtual_size()

    def _refresh_size(self) -> None:
        if not self._between:
            super()._refresh_size()

    @property
    def choices(self) -> Choices:
        """The list above this prompt."""
        return self.screen.query_one(Choices)

    def stand_still(self, still: bool) -> None:
        """Let the cursor not blink, and blink again if it did."""
        if still and self._blinks is None:
            self._blinks, self.cursor_blink = self.cursor_blink, False
        elif not still and self._blinks is not None:
            self.cursor_blink, self._blinks = self._blinks, None

    def put(self, text: str) -> None:
        """Show this text, cursor at its end; ctrl+z brings back what was there."""
        self.replace(sanitise(text).replace("\r", ""), (0, 0), self.document.end, maintain_selection_offset=False)
        self.move_cursor(self.document.end)

    def taken(self, sent: str) -> None:
        """This text was accepted: remember it and take it out of the box; what was typed since stays."""
        if sent.strip() and (not self._history or self._history[-1] != sent):
            self._history.append(sent)
        self._at, self._draft = len(self._history), ""
        left = self.text.removeprefix(sent)
        if self._aside and not left:
            with self.prevent(TextArea.Changed):  # what is said of the command stays
                self.put(self._aside)
            self._aside = ""
            self._list()
        elif left != self.text:
            self.put(left)

    def set_aside(self) -> None:
        """Take the text out of the box until another one has been sent."""
        if self.text:
            self._aside = self.text
            self.put("")

    def on_paste(self) -> None:
        self.call_later(self.post_message, self.Pasted())  # after the news that the text changed

    async def _on_key(self, event: events.Key) -> None:
        if event.key != "tab":
            self._tabbed = {}
        if event.key == "enter":
            event.prevent_default()  # a text area breaks the line

    def on_text_area_changed(self) -> None:
        self._list()

    def _list(self) -> None:
        """List what the command that is typed may go on with. One that is whole, and alone, needs no list."""
        self._listed = self.text
        if self.text in self._tabbed:
            self.choices.show(self._tabbed, list(self._tabbed).index(self.text))
        else:
            found = self._completer(self.text)
            self.choices.show({} if list(found) == [self.text] else found)

    def on_blur(self) -> None:
        self.choices.show({})

    def take(self, line: str) -> None:
        """A line that was chosen: it is sent, unless more is to follow."""
        if line != self.text:
            self.put(line)
        if not line.endswith((" ", "=")):
            self.choices.show({})
            self.post_message(self.Sent(line))

    def action_send(self) -> None:
        if self._listed != self.text:  # enter came before the news of the last letters
            self._list()
        if (line := self.choices.here) is not None:
            self.take(line)
        else:
            self.post_message(self.Sent(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_clear_all(self) -> None:
        """All lines, in one step that can be undone."""
        if self.text:
            self.delete((0, 0), self.document.end, maintain_selection_offset=False)

    def action_complete(self) -> None:
        """Tab goes round the completions of a command; without one it moves the focus."""
        lines = list(self._tabbed)
        if len(lines) > 1 and self.text in lines:
            index = (lines.index(self.text) + 1) % len(lines)
        else:
            self._tabbed = self._completer(self.text)
            lines, here = list(self._tabbed), self.choices.here
            index = lines.index(here) if here in lines else 0  # another one is listed where letters came since
        if lines:
            self.put(lines[index])
        elif not self.text.startswith("/"):
            self.screen.focus_next()

    def action_older(self) -> None:
        if self.choices.display:
            self.choices.action_cursor_up()
        else:
            self._browse(-1, self.cursor_location[0] == 0, self.action_cursor_up)

    def action_newer(self) -> None:
        if self.choices.display:
            self.choices.action_cursor_down()
        else:
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
