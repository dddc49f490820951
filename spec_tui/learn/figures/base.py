"""What every figure of a lesson is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from math import inf

from engines.report.events import Round
from engines.report.run_state import RunState
from spec_tui.present.rows import Row, words_of
from spec_tui.present.text import wrap

Runs = Mapping[str, RunState]


class LessonFigure(ABC):
    """A picture that the reader may change.

    Args:
        runs: the runs of the lesson.
        run, event: the run of the page, and its round; None where the page names none.

    Attributes:
        title: what it shows.
        moves: what ↑ and ↓ change; "" where they change nothing.
        draws: what space does; "" where it does nothing. ``verb`` is that in a word.
        of_run: whether it shows the run.
        at: which of ``count`` places the reader is at; ↑ adds ``direction``.
    """

    title = ""
    moves = ""
    draws = ""
    verb = "Draw"
    of_run = True
    count: float = 0
    direction = -1  # later places stand below

    def __init__(self, runs: Runs, run: RunState, event: Round | None) -> None:
        self.runs, self.run, self.event, self.at = runs, run, event, 0

    @abstractmethod
    def rows(self, width: int, height: int) -> list[Row]:
        """The picture in a space of this size."""

    def move(self, step: int) -> None:
        """Change what ``moves`` names, up or down."""
        self.at = max(0, min(self.count - 1, self.at + step * self.direction))

    def draw(self) -> None:  # noqa: B027
        """Do what ``draws`` says."""

    def still(self, width: int, height: int) -> list[Row]:
        """The picture on paper and line by line, where no key can be pressed: with what the keys would lead to."""
        return self.rows(width, height)


class ScrolledFigure(LessonFigure):
    """A list that may be longer than its place."""

    moves = "further down"
    of_run = False
    count = inf  # how many lines there are depends on the width

    @abstractmethod
    def lines(self, width: int) -> list[Row]:
        """The whole list."""

    def still(self, width: int, height: int) -> list[Row]:
        return self.lines(width)

    def rows(self, width: int, height: int) -> list[Row]:
        """As many lines as fit from where the reader is, who cannot go beyond the last ones."""
        lines = self.lines(width)
        self.at = max(0, min(self.at, len(lines) - height))
        shown = lines[self.at : self.at + height]
        if (more := len(lines) - self.at - len(shown)) > 0:
            shown[-1] = [(f"… ↓ {more + 1} more", "muted")]
        return shown


def told(width: int, strong: str, plain: str = "") -> list[Row]:
    """Sentences under a picture, wrapped: what matters first."""
    rows: list[Row] = []
    for line in wrap(f"{strong} {plain}", width - 1, initial_indent=" ", subsequent_indent=" "):
        rest = strong[sum(len(words_of(row).strip()) + 1 for row in rows) :]
        head = min(len(line), len(rest) + 1) if rest else 0
        rows.append([(line[:head], "strong"), (line[head:], "text")])
    return rows
