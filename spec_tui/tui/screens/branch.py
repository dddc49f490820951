"""Two versions of one text side by side: as it went on from a round, and as it goes on with something changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult

from engines.methods import find
from engines.report.run_state import RunState, first_difference
from engines.report.wording import counted
from engines.request import Request
from spec_tui.present.on_screen import on_screen
from spec_tui.present.rows import rows_beside
from spec_tui.present.speed_verdict import of_versions
from spec_tui.present.step.branching import as_far_as_both_go, differences, same_text, uses_past_answers, version_from
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import BUSY, FAILED
from spec_tui.session.chat_session import ChatSession, Turn
from spec_tui.tui.actions import Action, HasActions
from spec_tui.tui.widgets.speed_panel import number
from spec_tui.tui.widgets.step_panels import BLANK, visible_text
from spec_tui.tui.widgets.strip_panel import Backdrop, Divider, Lines, Pane, Row, SplitLine, fit, title_row
from spec_tui.tui.widgets.strip_plot import columns
from spec_tui.tui.widgets.wrap import Tok, wrapped

EVERY = 0.15  # seconds between two looks at the run
_NAME, _CELL = 14, 18  # columns of the table


def version_rows(title: str, run: RunState, at: int | None, top: int, width: int, height: int) -> list[Row]:
    """A version: its text, each token with its fate, and its rounds as columns.

    Args:
        at: index of the first token in which it differs from the other one.
        top: tokens that the highest column stands for.
    """
    state = counted(len(run.rounds), "round") + (" …" if run.running else "")
    bars = 3 if height >= 14 else 1
    toks = [Tok(visible_text(token.text or (token.piece if index == at else "")), "bad" if index == at else token.kind)
            for index, token in enumerate(run.tokens)]
    room = max(1, height - bars - 2)
    shown = wrapped(toks, width, answer=True)[-room:]
    gained = [len(event.emitted) for event in run.rounds]
    return [title_row(width, one_line(title), state), *shown, *[BLANK] * (room - len(shown)),
            [("tokens gained, one column per round", "muted")],
            *([(line, "bar")] for line in columns(gained[-width:], top, bars))]


def table_rows(a: RunState, b: RunState, said: str, well: bool | None, width: int) -> list[Row]:
    """The two versions in numbers, as far as both go, and what their texts say about each other."""
    title = "both versions" + ", up to the shorter" * (len(a.tokens) != len(b.tokens))
    a, b = as_far_as_both_go(a, b)
    mark, style = {True: ("✓", "good"), False: ("✗", "bad"), None: ("≠", "warn")}[well]
    both = (a.metrics, b.metrics)
    speed = of_versions(b, a)
    table = {"": ["as it was", "changed"], "tokens": [str(len(run.tokens)) for run in (a, b)],
             "rounds": [str(len(run.rounds)) for run in (a, b)],
             "accepted": [f"{m.accepted} of {m.drafted}" for m in both],
             "M": [number(m.mean_generated_length, 0, 2) for m in both],
             "tokens/s": [number(m.tokens_per_second, 0, 2) for m in both]}
    return [title_row(width, title, f"changed: {speed.words}" if speed.ratio else ""),
            *([(fit(name, _NAME), "muted"), *((fit(value, _CELL), "text" if name else "title") for value in values)]
              for name, values in table.items()),
            *rows_beside(f"{mark} ", style, said, width)]


class BranchScreen(HasActions, Backdrop):
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
    word_here = "branch"
    AUTO_FOCUS = ""
    ACTIONS = (
        Action(id="branch.leave", run="leave", keys="escape", label="Close", footer=True,
               help="Stop the branch, or close"),
        Action(id="branch.step", run="step", keys="full_stop", label="Step", footer=True,
               help="Go through the branch phase by phase"),
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
        yield SplitLine(id="branch-top")
        with Pane(id="branch-body"):
            yield Lines(id="as-it-was")
            yield Divider()
            yield Lines(id="changed")
        with Pane(id="branch-table"):
            yield Lines(id="both")
        yield from self.foot(SplitLine(id="branch-said"))

    def on_mount(self) -> None:
        self.set_interval(EVERY, self._tick)

    def _tick(self) -> None:
        if self.branch.run is not self._drawn or self._stuck:
            self.draw()

    @property
    def _stuck(self) -> bool:
        """Whether the engine does not stop the branch."""
        return self.branch is self.session.measuring and self.session.stuck

    def draw(self) -> None:
        self._drawn = self.branch.run
        a, b = version_from(self.turn.run, self.number), version_from(self.branch.run, 1)
        changed = self.branch.request
        at = first_difference(a, b, ends=False)
        top = max((len(e.emitted) for run in (a, b) for e in run.rounds), default=1)
        names = ", ".join(differences(self.asked, changed)) or "nothing changed"
        root = self.turn.run.root_of(self.number - 1)
        head = f"from round {self.number} on, after ‹{one_line(root.piece if root else '', 20)}›"
        self.query_one("#branch-top", SplitLine).show(
            [(" spec-tui ", "title"), (" branch ", "strong"), (head, "muted")], [(one_line(names) + " ", "accent")])
        titles = (find(self.asked.engine).title, f"{find(changed.engine).title}, changed")
        for panel, title, run in zip(self.query("#branch-body Lines").results(Lines), titles, (a, b)):
            panel.show(*version_rows(title, run, at, top, *panel.size))
        both = self.query_one("#both", Lines)
        both.show(*table_rows(a, b, *same_text(self.asked, changed, a, b), both.size.width))
        self.query_one("#branch-said", SplitLine).show(self._said())

    def _said(self) -> Row:
        run = self.branch.run
        if run.failed is not None:
            hint = one_line(on_screen(run.failed.hint))
            return [(f" {FAILED} ", "bad"), (one_line(run.failed.message), "text"), (f"  {hint}", "muted")]
        if self._stuck:
            return [(f" {FAILED} ", "bad"), (self.session.still, "text"), ("  esc closes", "muted")]
        if run.finished is None:
            return [(f" {BUSY} ", "good"), ("the branch is being written", "text"), ("  esc stops it", "muted")]
        ended = "stopped; the text is kept" if run.finished.reason == "cancelled" else "both are complete"
        if uses_past_answers(self.turn.run):
            ended += "; only the first version also drafted from past answers"
        return [("   ", "text"), (ended, "muted")]

    def action_leave(self) -> None:
        if self.branch is self.session.measuring and not self._stuck:
            self.session.cancel()
        else:
            self.dismiss(None)

    def action_step(self) -> None:
        if self.branch.run.rounds:
            self._step(self.branch)
