"""The lessons: the list of them, and one lesson, its text beside the step view, which goes where the page points."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.content import Content

from spec_tui.learn.lesson import Lesson, find, names, recorded, terms
from spec_tui.learn.walk import View, Walk
from spec_tui.present.step.player import StepPlayer
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import ListScreen
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.widgets.step_panels import BLANK, Explaining, StepPanel, Timeline
from spec_tui.tui.widgets.strip_panel import Row, SplitLine, title_row

_END = "End of the lesson: → leads to the next one."


class LessonsScreen(ListScreen[None]):
    """The list: enter begins a lesson, and after its end the next one is offered.

    Args:
        begin: name of a lesson to open at once.
        walk: this lesson, over runs of its own.
    """

    CSS_PATH: ClassVar = ["modal.tcss", "lessons.tcss"]

    def __init__(self, begin: str = "", walk: Walk | None = None) -> None:
        self.lessons = [find(name) for name in names()]
        self._begin, self._walk = begin, walk
        lines = [Content.assemble((f"{n:>2}  ", "$tok-prompt"), one.title) for n, one in enumerate(self.lessons, 1)]
        super().__init__("lessons", "enter begins · esc closes", lines, list(map(_about, self.lessons)),
                         names().index(begin) if begin else 0)

    def on_mount(self) -> None:
        super().on_mount()
        if self._begin:
            self.call_after_refresh(self._open, find(self._begin), self._walk)

    def chosen(self, number: int) -> None:
        self._open(self.lessons[number])

    def _open(self, lesson: Lesson, walk: Walk | None = None) -> None:
        walk = walk or Walk(lesson, recorded(lesson))
        self.app.push_screen(LessonScreen(walk, presenter=self.app.presenter), self._done)

    def _done(self, finished: bool | None) -> None:
        if finished and self.options.highlighted is not None:
            self.options.highlighted = min(self.options.highlighted + 1, len(self.lessons) - 1)


def _about(lesson: Lesson) -> Content:
    pages = f"{len(lesson.pages)} pages and a question, beside a recorded run: {', '.join(lesson.traces)}."
    return Content.assemble((lesson.about, "bold"), "\n\n", (pages, "$tok-prompt"), "\n\n",
                            (f"spec-tui learn {lesson.name}", "$tok-prompt"))


class LessonText(StepPanel):
    """The page where a walk is; ``scrolled`` rows of it are scrolled away.

    Attributes:
        typed: the number that is being typed.
        explains: the words of the page are shown in place of it.
    """

    walk: Walk | None = None
    typed = ""
    explains = False
    scrolled = 0

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        if self.walk is None:
            return []
        view = self.walk.view()
        where = f"{self.walk.at + 1} of {self.walk.length}"
        head: list[Row] = [title_row(width, view.title, where)]
        room = max(1, height - len(head))
        lines = _terms(view, width) if self.explains else body(view, width, self.typed, room)
        self.scrolled = max(0, min(self.scrolled, len(lines) - room))
        shown = lines[self.scrolled : self.scrolled + room]
        if len(lines) - self.scrolled > room:
            shown[-1] = [("… page down for the rest", "muted")]
        return [*head, *shown]


class LessonExplaining(Explaining):
    """What the step screen says of the phase; the lesson has a question of its own."""

    @staticmethod
    def _question(player: StepPlayer, width: int) -> list[Row]:
        return []


class LessonTimeline(Timeline):
    """The rounds; a lesson has no bookmarks."""

    @staticmethod
    def _foot(player: StepPlayer, width: int) -> Row:
        return Timeline._foot(player, width)[:1]


def body(view: View, width: int, typed: str = "", room: int = 99) -> list[Row]:
    """The rows of a view. Where there is room, blank ones stand between, and at the end where to read on."""
    wide = max(20, width - 1)
    parts: list[list[Row]] = [[[(line, "text")] for line in wrap(words, wide)] for words in view.paragraphs]
    if view.verdict is not None:
        mark, style = ("✓ ", "good") if view.verdict else ("✗ ", "bad")
        first, *more = wrap(view.paragraphs[0], wide - 2)
        parts[0] = [[(mark, style), (first, "strong")], *[[("  " + line, "strong")] for line in more]]
    if view.options:
        parts.append([_option(number, words) for number, words in enumerate(view.options, 1)])
    elif view.most is not None:
        parts.append([[("your guess: ", "strong"), (typed or "…", "accent"),
                       (f"   a number from 0 to {view.most}, then enter", "muted")]])
    if view.see:
        parts.append([[(line, "muted")] for line in wrap(f"→ {view.see}", wide)])
    rows = sum(map(len, parts))
    gaps = rows + len(parts) - 1 <= room
    if view.see and rows > room:
        parts.pop()
    return [row for number, part in enumerate(parts) for row in ([BLANK, *part] if gaps and number else part)]


def _option(number: int, words: str) -> Row:
    return [(f" {number} ", "title-here"), (f" {words}", "text")]


def _terms(view: View, width: int) -> list[Row]:
    """The words of a page, each explained."""
    known, lines = terms(), []
    for term in view.terms:
        first, *more = wrap(f"{term}: {known[term]}", max(20, width - 1))
        lines += [[(first[: len(term)], "strong"), (first[len(term) :], "text")], *[[(line, "text")] for line in more]]
    return lines or [[("No words of this page are in the glossary.", "muted")]]


def _free(lesson: LessonScreen) -> bool:
    """Whether the run may be looked at freely: while a question is asked, it would give the answer away."""
    return not lesson.walk.view().asks


class LessonScreen(StepScreen, inherit_bindings=False):
    """Goes through a lesson. Gives back whether it was gone through to its end.

    Args:
        walk: the lesson and its runs.
        presenter: begin large and without chrome.
    """

    CSS_PATH: ClassVar = ["step.tcss", "lessons.tcss"]
    TIMELINE: ClassVar = LessonTimeline
    PALETTE = "Lesson: "
    ACTIONS = (
        Action(id="lesson.next", run="next", keys="right,enter", label="Next page", footer=True,
               help="The next page; enter also answers with the number typed"),
        Action(id="lesson.back", run="back", keys="left", label="Page before", footer=True, help="The page before"),
        Action(id="lesson.terms", run="terms", keys="w", label="Words", footer=True,
               help="What the words of this page mean"),
        Action(id="lesson.phase", run="phase(1)", keys="full_stop", label="Phase", when=_free,
               help="The next phase of the run; turning the page returns to its own"),
        Action(id="lesson.phase-back", run="phase(-1)", keys="comma", label="Phase before", when=_free,
               help="The phase before"),
        Action(id="lesson.more", run="scroll(1)", keys="pagedown", label="Read on", help="The rest of the text"),
        Action(id="lesson.less", run="scroll(-1)", keys="pageup", label="Read back", help="Its beginning"),
        Action(id="lesson.present", run="present", keys="P", label="Present", footer=True,
               help="Large, light, without frames"),
        Action(id="lesson.rub", run="rub", keys="backspace", label="Delete", palette="",
               help="Take back the last digit typed"),
        Action(id="lesson.leave", run="leave", keys="escape", label="Leave", footer=True, help="Leave the lesson"),
        Action(id="lesson.digit", run="digit", digits=range(10), label="Digit", palette="",
               help="A choice, or a digit of the number guessed"),
    )

    def __init__(self, walk: Walk, presenter: bool = False) -> None:
        view = walk.view()
        super().__init__(view.run, walk.lesson.title, place=view.place, presenter=presenter)
        self.walk, self.typed_number = walk, ""

    def teaching(self) -> ComposeResult:
        yield LessonText(id="lesson")
        yield LessonExplaining(id="explaining")

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
        self.query_one("#step-top", SplitLine).show(left, [(f"{self.walk.view().name} · {here} ", "muted")])

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
        self.say("w goes back to the text" if panel.explains else "")
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
