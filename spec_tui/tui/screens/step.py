"""Step: a run phase by phase, for those who teach and those who learn. Draws any run, live or recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Digits, Footer, Static

from engines.report.run_state import RunState, fold_all
from engines.wire import Event
from spec_tui.present.step.phases import StepPosition, event_of
from spec_tui.present.step.player import SPEEDS, StepPlayer
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import spans
from spec_tui.tui import chat_words as words
from spec_tui.tui.screens.step_actions import StepActions
from spec_tui.tui.widgets.lines import Sides
from spec_tui.tui.widgets.pane import Divider, Pane
from spec_tui.tui.widgets.step_panels import Doing, Explaining, PhaseBar, SoFar, StepPanel, StepTree, Timeline

TICKS = 10  # a second, of the clock while playing
_FIGURES = ("round", "drafted", "accepted", "gained")


class StepScreen(StepActions, Screen):
    """Goes through a run.

    Args:
        source: a run, or its events.
        title: whose run it is.
        place: where to begin.
        look: gives the same run as it is now, where it may still grow or be told in more detail.
        presenter: begin large and without chrome.
    """

    CSS_PATH: ClassVar = ["step.tcss"]
    AUTO_FOCUS = ""
    TIMELINE: ClassVar = Timeline

    def __init__(
        self, source: RunState | Iterable[Event], title: str = "", *, place: StepPosition | None = None,
        look: Callable[[], RunState] | None = None, presenter: bool = False,
    ) -> None:
        super().__init__()
        run = source if isinstance(source, RunState) else fold_all(source)
        self.player, self.run_title, self._look = StepPlayer(run, place), title, look
        self.begins_presenting, self.message = presenter, ""
        self.typed: str | None = None  # digits of a round that is being typed
        self._theme_before = ""

    def compose(self) -> ComposeResult:
        yield Sides(id="step-top")
        yield PhaseBar(id="phases")
        with Pane(id="figures"):
            for name in _FIGURES:
                with Vertical(classes="figure"):
                    yield Digits("", id=f"figure-{name}")
                    yield Static(name, markup=False)
        with Pane(id="step-body"):
            with Pane(classes="column"):
                yield Doing(id="doing")
                yield StepTree(id="step-tree")
            yield Divider()
            with Pane(classes="column", id="teaching"):
                yield from self.teaching()
        with Pane(id="timeline-pane"):
            yield self.TIMELINE(id="timeline")
        yield Sides(id="step-said")
        yield Footer()
        yield Static(words.TOO_SMALL, id="step-enlarge", markup=False)

    def teaching(self) -> ComposeResult:
        """The panels beside the figure."""
        yield Explaining(id="explaining")
        yield SoFar(id="so-far")

    def on_mount(self) -> None:
        if self.begins_presenting:
            self.action_present()
        self.call_after_refresh(self.draw)
        self.set_interval(1 / TICKS, self._tick)

    def on_unmount(self) -> None:
        if self._theme_before:
            self.app.theme = self._theme_before

    def render_lines(self, crop: Region) -> list[Strip]:
        """The background, without the detour over a style cache."""
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    # -- time -------------------------------------------------------------------------------------
    def _tick(self) -> None:
        changed = self.refresh_run()
        was = self.player.playing
        if self.player.tick(1 / TICKS) or changed or was != self.player.playing:
            self.draw()

    def refresh_run(self) -> bool:
        """Take in what the run has become; whether it has changed."""
        run = self._look() if self._look is not None else self.player.run
        if run is self.player.run:
            return False
        self.player.update(run)
        return True

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        """Draw the place."""
        airy = self.has_class("presenting")
        for panel in self.query(StepPanel):
            panel.airy = airy
            panel.follow(self.player)
        self._draw_top()
        self._draw_said()
        if airy:
            self._draw_figures()

    def _draw_top(self) -> None:
        player = self.player
        here = "prefill" if not player.place.round else f"round {player.place.round} of {player.rounds}"
        playing = "▶" if player.playing else "▮▮"
        right = f"{here} · {playing} {SPEEDS[player.speed]:g}× · {'deeper' if player.deep else 'student'} "
        started = player.run.started
        engine = f"  {started.engine}" if started is not None else ""
        lossy = " LOSSY" if started is not None and not started.lossless else ""
        left = [(" spec-tui ", "title"), (" step ", "strong"), (one_line(self.run_title, 60), "muted"),
                *spans(one_line(engine, 24) + lossy, "text")]
        self.query_one("#step-top", Sides).show(left, [(right, "text")])

    def _draw_said(self) -> None:
        if self.typed is not None:
            row = [("   round ", "strong"), (self.typed or "…", "accent"), ("  enter goes there", "muted")]
        else:
            row = [("   ", "text"), *spans(one_line(self.message), "text")]
        keys = [(f" {self.pressed} ", "title-here")] if self.has_class("presenting") and self.pressed else []
        self.query_one("#step-said", Sides).show(row, keys)

    def _draw_figures(self) -> None:
        event = event_of(self.player.run, self.player.place.round)
        hidden = self.player.place.phase in ("context", "draft", "tree", "verify")
        drafted = len(event.draft.tokens) if event is not None else 0
        accepted = "-" if event is None or hidden else str(len(event.path))
        gained = "-" if event is None or hidden else str(len(event.emitted))
        if self.player.place.phase == "context":
            drafted = "-"
        for name, value in zip(_FIGURES, (self.player.place.round, drafted, accepted, gained)):
            self.query_one(f"#figure-{name}", Digits).update(str(value))

    def say(self, message: str) -> None:
        """A sentence above the keys, until the next move."""
        self.message = message
        self._draw_said()

    def on_timeline_picked(self, event: Timeline.Picked) -> None:
        self.player.jump(event.number)
        self.moved()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.draw)
