"""The text of a lesson: a page, the question, or what the run says."""

from __future__ import annotations

from textwrap import wrap

from spec_tui.learn.lesson import terms
from spec_tui.learn.walk import View, Walk
from spec_tui.present.step.player import StepPlayer
from spec_tui.tui.widgets.step_panels import BLANK, Explaining, StepPanel, Timeline
from spec_tui.tui.widgets.strip_panel import Row, title_row


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
