"""What was kept of former sessions: a list to choose from, to search, to rename and to delete in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual import on
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
from spec_tui.tui.widgets.clean_input import CleanInput
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
        Action(id="history.find", run="find", keys="slash", label="Find", footer=True,
               help="List only entries with these words in the title or the prompts"),
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
        self._all = history.entries(kind) if history is not None else []
        self.entries = self._all  # that are listed
        self._questions: dict[Path, str] = {}  # what was asked in each, read when ``/`` was first pressed
        self._asked: Entry | None = None  # the delete key was pressed once for it

    def compose(self) -> ComposeResult:
        with Box(self.kind, f"enter {_OPENS[self.kind]} · / finds · n new title · - deletes · esc closes"):
            with Horizontal(id="pair"):
                yield DescribedList(*map(_option, self.entries), id="entries")
                yield Description(_about(self.entries[0]) if self.entries else "")
            yield CleanInput(id="title", max_length=200, select_on_focus=False)
            yield CleanInput(id="wanted", max_length=60, placeholder="words of a title or a prompt")
            yield Static(self._state(), id="said", markup=False)

    def _state(self) -> str:
        if self.history is None:
            return f"Nothing is kept: {SETTING} turns it off."
        if not self._all:
            return _NONE[self.kind]
        return "" if self.entries else f"None of {len(self._all)} has these words: esc lists all again."

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
        if event.option is not self.listed.highlighted_option:
            return  # the cursor has gone on, or other entries are listed
        self._asked = None
        self.say("")
        self.describe(_about(self.chosen))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        if event.option is self.listed.highlighted_option:
            self.dismiss(self.chosen)

    def action_rename(self) -> None:
        if self.chosen is not None:
            self.add_class("renaming")
            box = self.query_one("#title", Input)
            box.value = one_line(self.chosen.title)
            box.focus()

    def action_find(self) -> None:
        if not self._questions:
            self._questions = {entry.folder: " ".join(entry.questions(QUESTIONS)) for entry in self._all}
        self.add_class("finding")
        self.query_one("#wanted").focus()

    @on(Input.Changed, "#wanted")
    def _narrow(self, event: Input.Changed) -> None:
        words = event.value.casefold().split()

        def has_all(entry: Entry) -> bool:
            text = f"{entry.title} {self._questions.get(entry.folder, '')}".casefold()
            return all(word in text for word in words)

        self.entries = list(filter(has_all, self._all))
        self.listed.set_options(map(_option, self.entries))
        self.listed.highlighted = 0 if self.entries else None
        self.describe(_about(self.entries[0]) if self.entries else "")
        self.say(self._state())

    @on(Input.Submitted, "#wanted")
    def _found(self, event: Input.Submitted) -> None:
        event.stop()
        self.listed.focus()

    @on(Input.Submitted, "#title")
    def _rename(self, event: Input.Submitted) -> None:
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
        self._all = [other for other in self._all if other is not entry]
        self.entries = [other for other in self.entries if other is not entry]
        options.remove_option_at_index(at)
        options.highlighted = min(at, len(self.entries) - 1) if self.entries else None
        self.describe(_about(self.chosen) if self.chosen is not None else "")
        self.say(" ".join(filter(None, (f"‹{one_line(entry.title, 40)}› was deleted.", follows, self._state()))))

    def action_close(self) -> None:
        """Leave the title as it is, list all again, or close."""
        if self.has_class("renaming"):
            self._end_rename()
        elif self.has_class("finding"):
            self.remove_class("finding")
            self.query_one("#wanted", Input).value = ""
            self.listed.focus()
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
