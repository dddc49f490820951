"""Two futures of one text side by side: as it went on from a round, and as it goes on with something changed."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Footer, Static

from engines.methods import find
from engines.report.run_state import RunState
from engines.request import Request
from spec_tui.present.step.branching import Future, differences, first_difference, future, verdict
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import spans
from spec_tui.session.chat_session import ChatSession, Turn
from spec_tui.tui import chat_words as words
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.widgets.step_rows import visible_text
from spec_tui.tui.widgets.strip_panel import Divider, Pane, Row, Sides, StripPanel, clip, fit, title_row
from spec_tui.tui.widgets.strip_plot import columns
from spec_tui.tui.widgets.wrap import GUTTER, Tok, Wrapper

EVERY = 0.15  # seconds between two looks at the run
_NAME, _CELL = 14, 18  # columns of the table


class FuturePanel(StripPanel):
    """One future: its text, each token with its fate, and its rounds as columns."""

    def show_future(self, title: str, what: Future, at: int | None, top: int) -> None:
        """Show this; ``at`` is the token from which on it differs, ``top`` the height of the columns."""
        self._given = title, what, at, top
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        if not hasattr(self, "_given"):
            return []
        title, what, at, top = self._given
        state = f"{len(what.gained)} rounds" + ("" if what.over else " …")
        bars = 3 if height >= 14 else 1
        wrapper = Wrapper(width - GUTTER)
        wrapper.start_line()
        for index, token in enumerate(what.tokens):
            style = "bad" if index == at else token.kind
            wrapper.push([Tok(visible_text(token.text or (token.piece if index == at else "")), style)])
        lines = [[(tok.text, tok.style or "text") for tok in line.toks] for line in wrapper.lines]
        room = max(1, height - bars - 2)
        shown = lines[-room:]
        plot = [[(line, "bar")] for line in columns(what.gained[-width:], top, bars)]
        return [clip(row, width) for row in (
            title_row(width, one_line(title, width // 2), state), *shown, *[[("", "text")]] * (room - len(shown)),
            [("tokens gained, a column a round", "muted")], *plot)]

    @property
    def titled_focus(self) -> bool:
        return False


class Table(StripPanel):
    """The two futures in numbers."""

    def show_both(self, a: Future, b: Future, said: str, well: bool | None) -> None:
        """Show these, and what their texts say about each other."""
        self._given = a, b, said, well
        self.update_rows()

    def rows(self, width: int, height: int) -> list[Row]:
        if not hasattr(self, "_given"):
            return []
        a, b, said, well = self._given
        mark, style = {True: ("✓", "good"), False: ("✗", "bad"), None: ("≠", "warn")}[well]
        head: Row = [(fit("", _NAME), "text"), (fit("as it was", _CELL), "title"), (fit("changed", _CELL), "title")]
        shares = [f"{f.accepted} of {f.drafted}" for f in (a, b)]
        lines = [("tokens", [str(len(f.tokens)) for f in (a, b)]), ("rounds", [str(len(f.gained)) for f in (a, b)]),
                 ("accepted", shares), ("M", [_number(f.mean) for f in (a, b)]),
                 ("tokens/s", [_number(f.rate) for f in (a, b)])]
        rows: list[Row] = [title_row(width, "both futures", _ratio(a, b)), head]
        rows += [[(fit(name, _NAME), "muted"), *[(fit(value, _CELL), "text") for value in values]]
                 for name, values in lines]
        first, *more = wrap(said, max(20, width - 3))
        told: list[Row] = [[(f"{mark} ", style), *spans(first, "text")], *[[("  ", "text"), *spans(line, "text")]
                                                                          for line in more]]
        return [clip(row, width) for row in (*rows, *told)]

    @property
    def titled_focus(self) -> bool:
        return False


class BranchScreen(HasActions, Screen):
    """The run of a turn from a round on, beside the run that goes on from there changed.

    Args:
        session: its engine; the chat takes in what it says.
        turn: the turn that was branched.
        asked: what it was asked with.
        number: the round.
        branch: the run that goes on; it may still run.
        step: opens the step screen of that run.
    """

    CSS_PATH: ClassVar = ["branch.tcss"]
    AUTO_FOCUS = ""
    ACTIONS = (
        Action(id="branch.leave", run="leave", keys="escape", label="Close", footer=True,
               help="Stop the other future, or close"),
        Action(id="branch.step", run="step", keys="full_stop", label="Step", footer=True,
               help="Go through the other future phase by phase"),
    )

    def __init__(
        self, session: ChatSession, turn: Turn, *, asked: Request, number: int, branch: Turn,
        step: Callable[[Turn], object],
    ) -> None:
        super().__init__()
        self.session, self.turn, self.asked, self.number = session, turn, asked, number
        self.branch, self._step = branch, step
        self._drawn: RunState | None = None

    def compose(self) -> ComposeResult:
        yield Sides(id="branch-top")
        with Pane(id="branch-body"):
            yield FuturePanel(id="as-it-was")
            yield Divider()
            yield FuturePanel(id="changed")
        with Pane(id="branch-table"):
            yield Table(id="both")
        yield Sides(id="branch-said")
        yield Footer()
        yield Static(words.TOO_SMALL, id="branch-enlarge", markup=False)

    def on_mount(self) -> None:
        self.call_after_refresh(self.draw)
        self.set_interval(EVERY, self._tick)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The background, without the detour over a style cache."""
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    def _tick(self) -> None:
        if self.branch.run is not self._drawn:
            self.draw()

    def futures(self) -> tuple[Future, Future]:
        """As it was, and changed. The changed one ends where the engine let go of it, too."""
        return future(self.turn.run, self.number), future(self.branch.run, 1)

    def draw(self) -> None:
        """Draw both."""
        self._drawn = self.branch.run
        a, b = self.futures()
        changed = self.branch.request
        at, top = first_difference(a, b), max((*a.gained, *b.gained), default=1)
        names = ", ".join(differences(self.asked, changed)) or "nothing changed"
        root = self.turn.run.root_of(self.number - 1)
        head = f"from round {self.number} on, after ‹{one_line(root.piece if root else '', 20)}›"
        self.query_one("#branch-top", Sides).show(
            [(" spec-tui ", "title"), (" branch ", "strong"), (head, "muted")], [(one_line(names) + " ", "accent")])
        self.query_one("#as-it-was", FuturePanel).show_future(find(self.asked.engine).title, a, at, top)
        self.query_one("#changed", FuturePanel).show_future(f"{find(changed.engine).title}, changed", b, at, top)
        self.query_one(Table).show_both(a, b, *verdict(self.asked, changed, a, b))
        self.query_one("#branch-said", Sides).show(self._said())

    def _said(self) -> Row:
        run = self.branch.run
        if run.failed is not None:
            hint = one_line(run.failed.hint)
            return [(" ✗ ", "bad"), (one_line(run.failed.message), "text"), (f"  {hint}", "muted")]
        if run.finished is None:
            return [(" ● ", "good"), ("the other future is being written", "text"), ("  esc stops it", "muted")]
        stopped = run.finished.reason == "cancelled"
        return [("   ", "text"), ("stopped; what is there stays" if stopped else "both have ended", "muted")]

    def action_leave(self) -> None:
        if self.branch is self.session.measuring:
            self.session.cancel()
        else:
            self.dismiss(None)

    def action_step(self) -> None:
        """Step through the other future."""
        if self.branch.run.rounds:
            self._step(self.branch)

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.draw)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _ratio(a: Future, b: Future) -> str:
    return f"changed: ×{b.rate / a.rate:.2f} the speed" if a.rate and b.rate else ""
