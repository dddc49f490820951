"""A lesson: its text beside the step view, which goes where the page points."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding

from spec_tui.learn.walk import Walk
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.widgets.lesson_panel import LessonExplaining, LessonText, LessonTimeline
from spec_tui.tui.widgets.lines import Sides
from spec_tui.tui.widgets.step_panels import Timeline

_END = "That was the lesson: → leads to the next one."


class LessonScreen(StepScreen, inherit_bindings=False):
    """Goes through a lesson. Gives back whether it was gone through to its end.

    Args:
        walk: the lesson and its runs.
        presenter: begin large and without chrome.
    """

    CSS_PATH: ClassVar = ["step.tcss", "lesson.tcss"]
    TIMELINE: ClassVar = LessonTimeline
    BINDINGS: ClassVar = [
        Binding("right,enter", "next", "Next page", id="lesson.next", key_display="→",
                tooltip="The next page; enter also answers with the number typed"),
        Binding("left", "back", "Page before", id="lesson.back", key_display="←", tooltip="The page before"),
        Binding("question_mark", "terms", "Words", id="lesson.terms", key_display="?",
                tooltip="What the words of this page mean"),
        Binding("full_stop", "phase(1)", "Phase", id="lesson.phase", key_display=".", show=False,
                tooltip="Look on: the next phase of the run. A page goes back to its own"),
        Binding("comma", "phase(-1)", "Phase before", id="lesson.phase-back", key_display=",", show=False,
                tooltip="Look back: the phase before"),
        Binding("pagedown", "scroll(1)", "Read on", id="lesson.more", show=False, tooltip="The rest of the text"),
        Binding("pageup", "scroll(-1)", "Read back", id="lesson.less", show=False, tooltip="Its beginning"),
        Binding("P,f", "present", "Present", id="lesson.present", tooltip="Large, without chrome, light"),
        Binding("backspace", "rub", "Rub out", id="lesson.rub", show=False, tooltip="Take back the last digit typed"),
        Binding("escape", "leave", "Leave", id="lesson.leave", tooltip="Leave the lesson"),
        Binding("f1", "app.help", "Help", id="lesson.help", key_display="F1", show=False, tooltip="All keys"),
        *[Binding(str(digit), f"digit({digit})", str(digit), id=f"lesson.{digit}", show=False,
                  tooltip="The answer of this number, or a digit of the number guessed") for digit in range(10)],
    ]

    def __init__(self, walk: Walk, presenter: bool = False) -> None:
        view = walk.view()
        super().__init__(view.run, walk.lesson.title, place=view.place, presenter=presenter)
        self.walk, self.typed_number = walk, ""

    def teaching(self) -> ComposeResult:
        yield LessonText(id="lesson")
        yield LessonExplaining(id="explaining")

    def commands(self) -> Iterable[SystemCommand]:
        """What the keys do, by name."""
        for binding in self.BINDINGS:
            if not binding.key.isdigit() and binding.action not in ("app.help", "rub"):
                yield SystemCommand(f"Lesson: {binding.description.lower()}", binding.tooltip,
                                    partial(self.run_action, binding.action))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return not (action == "phase" and self.walk.view().asks)

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        """Draw the page and its place."""
        text = self.query_one(LessonText)
        text.walk, text.typed = self.walk, self.typed_number
        super().draw()

    def _draw_top(self) -> None:
        number = self.player.place.round
        here = f"round {number}" if number else "prefill"
        left = [(" spec-tui ", "title"), (" lesson ", "strong"), (self.run_title, "text")]
        self.query_one("#step-top", Sides).show(left, [(f"{self.walk.view().name} · {here} ", "muted")])

    def turned(self) -> None:
        """Another page: the step view goes where it points; what a question asks for is hidden."""
        view, text = self.walk.view(), self.query_one(LessonText)
        self.player.run, self.player.place = view.run, view.place
        self.player.guessing = view.asks
        self.typed_number, self.message = "", _END if view.verdict is not None else ""
        text.scrolled, text.explains = 0, False
        self.query_one(LessonExplaining).scrolled = 0
        self.refresh_bindings()
        self.draw()

    # -- keys -------------------------------------------------------------------------------------
    def action_next(self) -> None:
        if self.typed_number:
            self._answer(int(self.typed_number))
        elif self.walk.forward():
            self.turned()
        elif self.walk.view().asks:
            self.say(self._how_to_answer())
        else:
            self.dismiss(True)

    def action_back(self) -> None:
        before = self.walk.at
        self.walk.back()
        if self.walk.at != before:
            self.turned()
        else:
            self.say("This is the beginning.")

    def action_digit(self, digit: int) -> None:
        view = self.walk.view()
        if not view.asks or self.walk.said is not None:
            self.say("Digits answer the question at the end." if not view.asks else "It is answered: → shows it again.")
        elif view.options:
            self._answer(digit)
        else:
            self.typed_number = (self.typed_number + str(digit))[:4]
            self.draw()

    def action_rub(self) -> None:
        self.typed_number = self.typed_number[:-1]
        self.draw()

    def action_phase(self, step: int) -> None:
        _ = self.player.forward() if step > 0 else self.player.back()
        self.draw()

    def action_scroll(self, step: int) -> None:
        panel = self.query_one(LessonText)
        panel.scrolled += step * max(1, panel.size.height - 2)
        panel.update_rows()

    def action_terms(self) -> None:
        panel = self.query_one(LessonText)
        panel.explains, panel.scrolled = not panel.explains, 0
        self.say("? goes back to the text" if panel.explains else "")
        panel.update_rows()

    def action_leave(self) -> None:
        """Undo one thing: words that are explained, presenter mode; else leave."""
        if self.query_one(LessonText).explains:
            self.action_terms()
        elif self.has_class("presenting") and not self.begins_presenting:
            self.action_present()
        else:
            self.dismiss(False)

    def on_timeline_picked(self, event: Timeline.Picked) -> None:
        if not self.walk.view().asks:
            self.player.jump(event.number)
            self.draw()

    def _answer(self, said: int) -> None:
        if self.walk.guess(said):
            self.turned()
        else:
            self.typed_number = ""
            self.draw()
            self.say(self._how_to_answer())

    def _how_to_answer(self) -> str:
        view = self.walk.view()
        if view.options:
            return f"Press 1 to {len(view.options)}; a guess is enough."
        return f"Type a number from 0 to {view.most} and press enter; a guess is enough."
