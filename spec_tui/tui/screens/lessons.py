"""The lessons: the list of them, and one lesson, its text beside the step view, which goes where the page points, or
beside a figure that the reader may change."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.content import Content
from textual.events import Click
from textual.message import Message

from engines.report.wording import between, counted
from spec_tui.learn.figures.base import LessonFigure
from spec_tui.learn.glossary_entries import explained
from spec_tui.learn.lesson import Lesson, find, names
from spec_tui.learn.lesson_progress import LessonProgress, View
from spec_tui.learn.sources import named_in, sources
from spec_tui.present.rows import Row, rows_of, words_of
from spec_tui.present.step.player import StepPlayer
from spec_tui.present.text import wrap
from spec_tui.present.token_styles import HERE
from spec_tui.session import kept_settings
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.modal import ListScreen
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.widgets.step_panels import BLANK, REST, Doing, Explaining, ScrolledPanel, Timeline, tree_first
from spec_tui.tui.widgets.strip_panel import SplitLine, StripPanel, clip, title_row

_FRAME = 4  # rows above and below a figure and its text, and the figure's title
_TALL = 99  # rows in which a figure shows everything
_FEWEST = 5  # rows in which an explanation is worth its title
_END = "End of the lesson: → goes on to the next."
_LAST = "End of the lesson, the last one: → goes back to the list."
_TABLES = "The papers' tables about it, to run again"


class LessonsScreen(ListScreen[None]):
    """The list: enter begins a lesson, and after its end the next one is offered. ``progress``: a lesson, or a path
    through several, to open at once."""

    CSS_PATH: ClassVar = ["modal.tcss", "lessons.tcss"]
    ACTIONS = (Action(id="lessons.begin", run="begin", keys="right", label="Begin", help="Begin the lesson"),
               Action(id="lessons.papers", run="papers", keys="L", label="Papers", help=_TABLES))
    word_here = "lesson"

    def __init__(self, progress: LessonProgress | None = None) -> None:
        self.lessons = [find(name) for name in names()]
        self._progress, finished = progress, kept_settings.finished_lessons()
        lines = [_line(number, one, one.name in finished) for number, one in enumerate(self.lessons, 1)]
        begun = progress is not None and progress.lesson.name in names()
        super().__init__(
            "lessons", "enter begins · L papers' tables · esc closes", lines, list(map(_about, self.lessons)),
            names().index(progress.lesson.name) if begun else 0)

    def on_mount(self) -> None:
        if self._progress is not None:
            self.call_after_refresh(self._open, self._progress)

    def chosen(self, number: int) -> None:
        self._open(LessonProgress.of(self.lessons[number]))

    def action_begin(self) -> None:
        self.chosen(self.listed.highlighted or 0)

    def action_papers(self) -> None:
        self.app.show_papers(self.lessons[self.listed.highlighted or 0].tables[:1])

    def _open(self, progress: LessonProgress) -> None:
        self.app.push_screen(LessonScreen(progress), lambda went_on: self._done(progress, went_on))

    def _done(self, progress: LessonProgress, went_on: bool | None) -> None:
        name = progress.lesson.name
        if not progress.at_end or name not in names():
            return
        kept_settings.finish_lesson(name)
        number = names().index(name)
        self.listed.replace_option_prompt_at_index(number, _line(number + 1, self.lessons[number], True))
        if went_on:
            self.listed.highlighted = min(number + 1, len(self.lessons) - 1)


def _line(number: int, lesson: Lesson, finished: bool) -> Content:
    mark = ("✓ ", "$tok-accept") if finished else "  "
    return Content.assemble(mark, (f"{number:>2}  ", "$tok-prompt"), lesson.title)


def _about(lesson: Lesson) -> Content:
    asks, figures = sum(bool(page.choices) for page in lesson.pages), sum(bool(page.figure) for page in lesson.pages)
    pages = f"{len(lesson.pages)} pages: {counted(asks, 'question')}, {counted(figures, 'figure')} to change."
    runs = f"Recorded runs: {', '.join(lesson.traces)}."
    tables = f"\nPapers' tables: {', '.join(lesson.tables)}." if lesson.tables else ""
    return Content.assemble(
        (lesson.about, "bold"), "\n\n", (pages, "$tok-prompt"), "\n", (runs + tables, "$tok-prompt"), "\n\n",
        (f"spec-tui learn {lesson.name}", "$tok-prompt"))


class LessonText(ScrolledPanel):
    """The page where a progress is. ``shows``: the page's "text", its "words" explained, or its "notes" for the
    presenter."""

    progress: LessonProgress | None = None
    shows = "text"
    _answers: Sequence[int | None] = ()  # by row: the answer on it

    @dataclass
    class Answered(Message):
        """A click on an answer."""

        number: int

    def on_click(self, event: Click) -> None:
        if event.y < len(self._answers) and (number := self._answers[event.y]) is not None:
            self.post_message(self.Answered(number))

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        if self.progress is None:
            return []
        view = self.progress.view()
        where = f"{self.progress.at + 1} of {self.progress.length}"
        head: list[Row] = [title_row(width, view.page.title, where)]
        room = max(1, height - len(head))
        lines = {"text": body, "words": _words, "notes": _notes}[self.shows](view, width, room)
        shown = self.window(lines, room)
        self._answers = [getattr(row, "answer", None) for row in (*head, *shown)]
        return [*head, *shown]

    def needed(self, player: StepPlayer, width: int) -> int:
        if self.progress is None:
            return 1
        view = self.progress.view()
        rows = body(view, width)
        free = self.screen.size.height - _FRAME - 2 - len(rows)
        if view.figure is not None and len(copy(view.figure).rows(width, _TALL)) > free:
            return 1 + sum(row is not BLANK for row in rows)  # the figure needs the blank rows
        return 2 + len(rows)  # a blank row at the end


class FigurePanel(StripPanel):
    """The figure of the page, where it has one: the wheel moves in it, a click does what space does."""

    progress: LessonProgress | None = None

    @property
    def figure(self) -> LessonFigure | None:
        """The page's figure; None where it has none."""
        return self.progress.view().figure if self.progress is not None else None

    def move(self, step: int) -> None:
        """Do what the arrow keys do."""
        self.figure.move(step)
        self._changed()

    def on_mouse_scroll_up(self) -> None:
        self.move(1)

    def on_mouse_scroll_down(self) -> None:
        self.move(-1)

    def on_click(self) -> None:
        self.figure.draw()
        self._changed()

    def _changed(self) -> None:
        self.update_rows()
        self.screen.query_one(LessonText).refresh(layout=True)  # which leaves the figure the rows that it needs now

    def rows(self, width: int, height: int) -> list[Row]:
        if (figure := self.figure) is None:
            return []
        keys = [f"↑ ↓ {figure.moves}"] * bool(figure.moves) + [f"space: {figure.draws}"] * bool(figure.draws)
        head, foot = [title_row(width, figure.title)], rows_of(" · ".join(keys), max(20, width - 1), "muted")
        room = max(1, height - len(head) - (height > 9))
        rows = _fitted(figure.rows(width, room), room)
        gap = [BLANK] if height - len(head) - len(rows) - len(foot) > 0 else []
        return [clip(row, width) for row in (*head, *rows, *gap, *(foot if height > 9 else ()))]


def _fitted(rows: list[Row], room: int) -> list[Row]:
    """What has room of a figure: from its beginning, or up to where the reader is; how much is left out is said."""
    if len(rows) <= room:
        return rows
    here = next((number for number, row in enumerate(rows) if HERE in words_of(row)), 0)
    first = max(0, min(here - room + 2, len(rows) - room + 1))
    left_out = counted(len(rows) - room + 1, "more row")
    return [*rows[first : first + room - 1], [(f" … a larger window shows {left_out}", "muted")]]


class LessonExplaining(Explaining):
    """What the step screen says of the phase, where all of it has room; the lesson has questions of its own."""

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        rows = super().draw(player, width, height)
        return [] if REST in rows or height < _FEWEST else rows

    @staticmethod
    def _question(player: StepPlayer, width: int) -> list[Row]:
        return []


class LessonTimeline(Timeline):
    """The rounds; a lesson has no bookmarks."""

    @staticmethod
    def _foot(player: StepPlayer, width: int) -> Row:
        return Timeline._foot(player, width)[:1]


class _AnswerRow(list):
    """A row of an answer that can be given, with its number."""

    def __init__(self, answer: int, row: Row) -> None:
        super().__init__(row)
        self.answer = answer


def body(view: View, width: int, room: int = 99) -> list[Row]:
    """The rows of a view. Where there is room, blank ones stand between, and at the end where to read on."""
    wide = max(20, width - 1)
    parts: list[list[Row]] = [rows_of(words, wide) for words in view.paragraphs]
    if view.verdict is not None:
        mark, words, style = ("✓", "Right.", "good") if view.verdict else ("✗", "Not so.", "bad")
        said = wrap(f"{view.said}: {view.options[view.said - 1]}", wide, initial_indent=" " * len(f"{mark} {words} "))
        first, *more = [line.strip() for line in said]
        parts.insert(0, [[(f"{mark} {words} ", style), (first, "strong")], *[[(line, "strong")] for line in more]])
    elif view.options:
        parts.append([_AnswerRow(number, row) for number, words in enumerate(view.options, 1)
                      for row in _option(number, words, wide)])
    keys = between(1, len(view.options))
    if doing := view.page.do if not view.options else f"Press {keys}, or click." if view.asks else "":
        parts.append(rows_of(doing, wide, "accent"))
    rows = sum(map(len, parts))
    if view.page.see and rows + 1 <= room:
        parts.append(rows_of(f"→ {view.page.see}", wide, "muted"))
        if (rows := sum(map(len, parts))) > room:
            rows -= len(parts.pop())
    gaps = rows + len(parts) - 1 <= room
    return [row for number, part in enumerate(parts) for row in ([BLANK, *part] if gaps and number else part)]


def _option(number: int, words: str, width: int) -> list[Row]:
    first, *more = wrap(words, width - 4)
    return [[(f" {number} ", "title-here"), (f" {first}", "text")], *[[("    " + line, "text")] for line in more]]


def _words(view: View, width: int, room: int) -> list[Row]:
    """The words of a page, each explained."""
    lines: list[Row] = []
    for term in view.page.terms:
        first, *more = wrap(f"{term}: {explained(term)}", max(20, width - 1))
        lines += [[(first[: len(term)], "strong"), (first[len(term) :], "text")], *[[(line, "text")] for line in more]]
    return lines or [[("No words of this page are in the glossary.", "muted")]]


def _notes(view: View, width: int, room: int) -> list[Row]:
    """What the presenter should know of a page."""
    return rows_of(view.note or "There is no note for this page.", max(20, width - 1))


_FREE = attrgetter("free")


def _moves(lesson: LessonScreen) -> bool:
    figure = lesson.progress.view().figure
    return figure is not None and bool(figure.moves)


def _draws(lesson: LessonScreen) -> bool:
    figure = lesson.progress.view().figure
    return figure is not None and bool(figure.draws)


class LessonScreen(StepScreen, inherit_bindings=False):
    """Goes through a lesson. Gives back True to go on after its end, None where it was left. ``progress``: the lesson
    and its runs."""

    CSS_PATH: ClassVar = ["step.tcss", "lessons.tcss"]
    TIMELINE: ClassVar = LessonTimeline
    PALETTE = "Lesson: "
    ACTIONS = (
        Action(id="lesson.next", run="next", keys="right,enter", label="Next", footer=True, palette="Lesson: next page",
               help="The next page"),
        Action(id="lesson.back", run="back", keys="left", label="Back", footer=True, palette="Lesson: previous page",
               help="The previous page"),
        Action(id="lesson.up", run="move(1)", keys="up", label="Move", footer=True, offered=_moves,
               help="Move in the figure, or in a table that is longer than its panel"),
        Action(id="lesson.down", run="move(-1)", keys="down", label="Move down",
               help="Move down in the figure or table"),
        Action(id="lesson.draw", run="draw_figure", keys="space", label="Draw", footer=True, when=_draws,
               help="Do what the line below the figure says"),
        Action(id="lesson.phase", run="phase(1)", keys="full_stop", label="Phase", footer=True, when=_FREE,
               help="The next phase of the run; turning the page returns to its own"),
        Action(id="lesson.phase-back", run="phase(-1)", keys="comma", label="Previous phase", when=_FREE,
               help="The previous phase"),
        Action(id="lesson.terms", run="shows('words')", keys="w", label="Words", footer=True,
               help="What the words of this page mean"),
        Action(id="lesson.notes", run="shows('notes')", keys="T", label="Notes",
               help="The presenter's notes on this page"),
        Action(id="lesson.more", run="scroll(1)", keys="pagedown", label="Read on", help="The rest of the text"),
        Action(id="lesson.less", run="scroll(-1)", keys="pageup", label="Read back", help="The beginning of the text"),
        Action(id="lesson.sources", run="sources", keys="O", label="Sources", footer=True,
               help="Papers and documents that the lesson names; documents open here"),
        Action(id="lesson.papers", run="papers", keys="L", label="Papers", help=_TABLES),
        Action(id="lesson.leave", run="leave", keys="escape", label="Leave", footer=True, help="Leave the lesson"),
        Action(id="lesson.digit", run="digit", digits=range(1, 10), label="Digit", palette="",
               help="Answers the question with this choice"),
    )

    def __init__(self, progress: LessonProgress) -> None:
        view = progress.view()
        super().__init__(view.run, progress.lesson.title, place=view.place)
        self.add_class("lesson")  # its style sheet goes before that of the step screen
        self.progress = progress

    def teaching(self) -> ComposeResult:
        yield LessonText(id="lesson")
        yield LessonExplaining(id="explaining")

    @property
    def word_here(self) -> str:
        return next(iter(self.progress.view().page.terms), "")

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """The keys; space is called what it does to this figure."""
        found, figure = super().active_bindings, self.progress.view().figure
        if figure is not None and "space" in found:
            node, binding, *rest = found["space"]
            found["space"] = ActiveBinding(node, replace(binding, description=figure.verb), *rest)
        return found

    @property
    def free(self) -> bool:
        """Whether the run may be looked at freely: while a question is asked, it would give the answer away."""
        return not self.progress.view().asks and self.progress.view().figure is None

    @property
    def hiding(self) -> bool:
        """Whether what becomes of the round is still hidden."""
        return self.progress.view().hides

    def picture(self) -> ComposeResult:
        yield FigurePanel(id="figure")
        yield from super().picture()

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        view, figure = self.progress.view(), self.query_one(FigurePanel)
        self.player.run, self.player.guessing = view.run, self.hiding
        self.player.skipped = self.player.place.round  # the lesson itself asks, where it does
        self.set_class(view.figure is not None, "figured")
        self.query_one(LessonText).progress = figure.progress = self.progress
        self.set_class(tree_first(self.player), "tree-first")
        super().draw()
        figure.update_rows()
        for panel in self.query("#doing, #step-tree, #lesson"):
            panel.refresh(layout=True)  # as high as what it shows now

    def _draw_top(self) -> None:
        view, number = self.progress.view(), self.player.place.round
        here = "" if view.figure is not None else f" · round {number}" if number else " · prefill"
        left = [(" spec-tui ", "title"), (" lesson ", "strong"), (self.run_title, "text")]
        self.query_one("#step-top", SplitLine).show(left, [(f"{view.name}{here} ", "muted")])

    @property
    def _ending(self) -> str:
        name = self.progress.lesson.name
        return "The end." if name not in names() else _LAST if name == names()[-1] else _END

    def turned(self) -> None:
        """Another page, or an answer: the step view goes where it points; what a question asks for is hidden."""
        view, text = self.progress.view(), self.query_one(LessonText)
        self.player.run, self.player.place = view.run, view.place
        self.message = self._ending if self.progress.at_end else ""
        text.scrolled, text.shows = 0, "text"
        self.query_one(LessonExplaining).scrolled = self.query_one(Doing).scrolled = 0
        self.refresh_bindings()
        self.draw()

    # -- keys -------------------------------------------------------------------------------------
    def action_next(self) -> None:
        if self.progress.forward():
            self.turned()
        elif self.progress.view().asks:
            self.say(self._how_to_answer())
        else:
            self.dismiss(True)

    def action_back(self) -> None:
        before = self.progress.at
        self.progress.back()
        if self.progress.at != before:
            self.turned()
        else:
            self.say("This is the beginning.")

    def action_digit(self, digit: int) -> None:
        view = self.progress.view()
        if not view.options:
            self.say("Nothing is asked on this page.")
        elif view.verdict:
            self.say("It is answered: → goes on.")
        elif self.progress.answer(digit):
            self.turned()
        else:
            self.say(self._how_to_answer())

    def on_lesson_text_answered(self, event: LessonText.Answered) -> None:
        self.action_digit(event.number)

    def action_move(self, step: int) -> None:
        panel = self.query_one(FigurePanel)
        if panel.figure is not None:
            panel.move(step)
        else:
            self.query_one(Doing).scroll(-step)

    def action_draw_figure(self) -> None:
        self.query_one(FigurePanel).on_click()

    def action_phase(self, step: int) -> None:
        _ = self.player.forward() if step > 0 else self.player.back()
        self.draw()

    def action_scroll(self, step: int) -> None:
        panel = self.query_one(LessonText)
        panel.scroll(step * max(1, panel.size.height - 2))

    def action_shows(self, what: str) -> None:
        panel = self.query_one(LessonText)
        panel.shows, panel.scrolled = "text" if panel.shows == what else what, 0
        self.say(f"{'w' if what == 'words' else 'T'} goes back to the text" if panel.shows == what else "")
        panel.update_rows()

    def action_sources(self) -> None:
        from spec_tui.tui.screens.lesson_sources import SourcesScreen

        if listed := sources(self.progress.lesson):
            self.app.push_screen(SourcesScreen(listed, next(iter(named_in(self.progress.view().page.see)), None)))

    def action_papers(self) -> None:
        self.app.show_papers(self.progress.lesson.tables[:1])

    def action_leave(self) -> None:
        """Undo one thing: what covers the text, presenter mode; else leave."""
        if (shows := self.query_one(LessonText).shows) != "text":
            self.action_shows(shows)
        elif self.has_class("presenting") and not self.begins_presenting:
            self.app.present(False)
        else:
            self.dismiss(None)

    def _how_to_answer(self) -> str:
        return f"Press {between(1, len(self.progress.view().options))}; a guess is enough."
