"""What was kept of former sessions: a list to choose from, to rename and to delete in."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from engines.errors import SpecError
from spec_tui.present.on_screen import failure
from spec_tui.present.text import one_line
from spec_tui.session.history import SETTING, Entry, History, Kind
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import Box, DescribedList, DescribedModal, Description
from spec_tui.tui.widgets.strip_panel import shortened

QUESTIONS = 6  # of an entry that are shown
_OPENS = {"conversations": "continues it", "races": "shows it"}
_NONE = {"conversations": "No conversation is kept yet: each answer is saved when it ends.",
         "races": "No race is kept yet: each race is saved when it ends."}


class HistoryScreen(DescribedModal[Entry]):
    """Gives back the entry that was chosen, None if closed.

    Args:
        history: where they are kept; None where that is turned off.
        kind: what to list.
        forget: deletes an entry, where more must be done than to remove it from the disk, and says what follows from
            that. Raises SpecError.
    """

    CSS_PATH: ClassVar = ["modal.tcss", "history_list.tcss"]
    ACTIONS = (
        Action(id="history.rename", run="rename", keys="n", label="New title", footer=True,
               help="Give it another title"),
        Action(id="history.delete", run="delete", keys="minus,delete", label="Delete", footer=True,
               help="Delete it from the disk (press twice)"),
    )

    def __init__(
        self, history: History | None, kind: Kind, forget: Callable[[Entry], str | None] = Entry.delete
    ) -> None:
        super().__init__()
        self.history, self.kind, self.forget = history, kind, forget
        self.entries = history.entries(kind) if history is not None else []
        self._asked: Entry | None = None  # the delete key was pressed once for it

    def compose(self) -> ComposeResult:
        with Box(self.kind, f"enter {_OPENS[self.kind]} · n new title · - deletes · esc closes"):
            with Horizontal(id="pair"):
                yield DescribedList(*map(_option, self.entries), id="entries")
                yield Description(_about(self.entries[0]) if self.entries else "")
            yield Input(id="title", max_length=200, select_on_focus=False)
            yield Static(self._state(), id="said", markup=False)

    def _state(self) -> str:
        if self.history is None:
            return f"Nothing is kept: {SETTING} turns it off."
        return "" if self.entries else _NONE[self.kind]

    def on_mount(self) -> None:
        self.listed.focus()

    @property
    def word_here(self) -> str:
        return self.kind.removesuffix("s")

    @property
    def chosen(self) -> Entry | None:
        """The entry under the cursor."""
        at = self.listed.highlighted
        return self.entries[at] if at is not None else None

    def say(self, words: str) -> None:
        self.query_one("#said", Static).update(words)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self._asked = None
        self.say("")
        self.describe(_about(self.entries[event.option_index]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.entries[event.option_index])

    def action_rename(self) -> None:
        if self.chosen is not None:
            self.add_class("renaming")
            box = self.query_one(Input)
            box.value = one_line(self.chosen.title)
            box.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        entry, at = self.chosen, self.listed.highlighted
        try:
            entry.rename(event.value)
        except SpecError as error:
            self.say(failure(error))
        self.listed.replace_option_prompt_at_index(at, _option(entry).prompt)
        self.describe(_about(entry))
        self._end_rename()

    def action_delete(self) -> None:
        entry, options = self.chosen, self.listed
        if entry is None:
            return
        if self._asked is not entry:
            self._asked = entry
            self.say(f"Press - again to delete ‹{one_line(entry.title, 40)}› from the disk.")
            return
        try:
            follows = self.forget(entry)
        except SpecError as error:
            self.say(failure(error))
            return
        at = self.entries.index(entry)
        del self.entries[at]
        options.remove_option_at_index(at)
        options.highlighted = min(at, len(self.entries) - 1) if self.entries else None
        self.describe(_about(self.chosen) if self.chosen is not None else "")
        self.say(" ".join(filter(None, (f"‹{one_line(entry.title, 40)}› was deleted.", follows, self._state()))))

    def action_close(self) -> None:
        """Leave the title as it is, or close."""
        if self.has_class("renaming"):
            self._end_rename()
        else:
            self.dismiss(None)

    def _end_rename(self) -> None:
        self.remove_class("renaming")
        self.listed.focus()


def _option(entry: Entry) -> Option:
    return Option(Content.assemble((f"{when(entry.changed):<13}", "$tok-prompt"), shortened(one_line(entry.title), 36)))


def _about(entry: Entry) -> Content:
    runs = f"{entry.count} run{'s' if entry.count != 1 else ''}"
    asked = "\n".join(f"› {one_line(words, 160)}" for words in dict.fromkeys(entry.questions(QUESTIONS)))
    return Content.assemble(
        (one_line(entry.title), "bold"), "\n", (f"{runs} · {one_line(entry.about)}\n\n", "$tok-prompt"), asked,
        ("\n\n" + one_line(f"in {entry.folder}"), "$tok-prompt"))


def when(seconds: float) -> str:
    """A time in the past: the hour today, the day this year, else the date."""
    try:
        then, now = time.localtime(seconds), time.localtime()
    except (OverflowError, ValueError, OSError):
        return "unknown"
    if then[:3] == now[:3]:
        return time.strftime("today %H:%M", then)
    return time.strftime("%d %b %H:%M" if then[0] == now[0] else "%Y-%m-%d", then)
