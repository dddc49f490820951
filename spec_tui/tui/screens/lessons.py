"""The lessons there are: enter begins one, and behind its end the next one is offered."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from spec_tui.learn.lesson import Lesson, find, names, recorded
from spec_tui.learn.walk import Walk
from spec_tui.tui.screens.lesson import LessonScreen
from spec_tui.tui.screens.modal import Box, SpecModal


class LessonsScreen(SpecModal[None]):
    """The list.

    Args:
        begin: name of a lesson to open at once.
        walk: this lesson, over runs of its own.
    """

    CSS_PATH: ClassVar = ["modal.tcss", "lesson.tcss"]

    def __init__(self, begin: str = "", walk: Walk | None = None) -> None:
        super().__init__()
        self.lessons = [find(name) for name in names()]
        self._begin, self._walk = begin, walk

    def compose(self) -> ComposeResult:
        with Box("lessons", "enter begins · esc closes"), Horizontal(id="pair"):
            yield OptionList(*[Option(_label(n, lesson)) for n, lesson in enumerate(self.lessons, 1)], id="list")
            yield Static("", id="about", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self.query_one(OptionList).highlighted = names().index(self._begin) if self._begin else 0
        if self._begin:
            self.call_after_refresh(self._open, find(self._begin), self._walk)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#about", Static).update(_about(self.lessons[event.option_index]))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._open(self.lessons[event.option_index])

    def _open(self, lesson: Lesson, walk: Walk | None = None) -> None:
        walk = walk or Walk(lesson, recorded(lesson))
        self.app.push_screen(LessonScreen(walk, presenter=self.app.presenter), self._done)

    def _done(self, finished: bool | None) -> None:
        options = self.query_one(OptionList)
        if finished and options.highlighted is not None:
            options.highlighted = min(options.highlighted + 1, len(self.lessons) - 1)


def _label(number: int, lesson: Lesson) -> Content:
    return Content.assemble((f"{number:>2}  ", "$tok-prompt"), lesson.title)


def _about(lesson: Lesson) -> Content:
    pages = f"{len(lesson.pages)} pages and a question, beside a recorded run: {', '.join(lesson.traces)}."
    return Content.assemble((lesson.about, "bold"), "\n\n", (pages, "$tok-prompt"), "\n\n",
                            (f"spec-tui learn {lesson.name}", "$tok-prompt"))
