"""Race: engines side by side, fair while they are timed, and afterwards all on one clock."""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Footer, Static

from spec_tui.tui import chat_words as words
from spec_tui.tui import race_words
from spec_tui.tui.chat_session import ChatSession, Happening
from spec_tui.tui.race_controller import RaceController
from spec_tui.tui.screens.race_actions import RaceActions
from spec_tui.tui.widgets.lines import Lines, Sides
from spec_tui.tui.widgets.pane import Divider, Pane
from spec_tui.tui.widgets.prompt_box import PromptBox
from spec_tui.tui.widgets.race_lanes import RaceLanes
from spec_tui.tui.widgets.race_plot import RacePlot
from spec_tui.tui.widgets.race_table import RaceTable, ranked

MOVING, WATCHING, RESTING = 1 / 15, 1 / 4, 1 / 10  # seconds between two looks: at what moves, at timed lanes, else


class RaceScreen(RaceActions, Screen[set[Happening]]):
    """Draws a ``RaceController`` over a sitting's engine; the chat below must not take the engine's events meanwhile.
    Gives back what the sitting has heard."""

    CSS_PATH: ClassVar = ["race.tcss"]
    AUTO_FOCUS = ""

    def __init__(self, sitting: ChatSession) -> None:
        super().__init__()
        self.contest = RaceController(sitting)
        self.message = ""
        self._seen = monotonic()
        self.add_class("before")

    def compose(self) -> ComposeResult:
        yield Sides(id="race-top")
        yield RaceLanes(id="race-lanes")
        with Pane(id="race-below"):
            yield RacePlot(id="race-plot")
            yield Divider(id="race-divider")
            yield RaceTable(id="race-table")
        with Horizontal(id="race-ask"):
            yield Static("›", id="race-mark", markup=False)
            yield PromptBox(self._complete, id="race-prompt", placeholder="What shall they all answer?")
        yield Lines(id="race-said")
        yield Footer()
        yield Static(words.TOO_SMALL, id="race-enlarge", markup=False)

    def on_mount(self) -> None:
        self.query_one(PromptBox).put(self.contest.setup.prompt)
        self.call_after_refresh(self.draw)
        self._next_look()

    def render_lines(self, crop: Region) -> list[Strip]:
        """The background, without the detour over a style cache."""
        return [Strip.blank(crop.width, self.rich_style)] * crop.height

    # -- time -------------------------------------------------------------------------------------
    def _next_look(self) -> None:
        bout, photo = self.contest.bout, self.contest.photo
        if bout is not None and bout.timing:
            wait = WATCHING
        else:
            wait = MOVING if self.contest.running or (photo is not None and photo.playing) else RESTING
        self.set_timer(wait, self._look)

    def _look(self) -> None:
        self.pump()
        self._next_look()

    def pump(self) -> None:
        """Take what the engine said, let the clock of the photo finish go on, and draw what that changed. While lanes
        are timed that is one line, when the next one begins."""
        now = monotonic()
        passed, self._seen = now - self._seen, now
        ran, heard, photo = self.contest.running, self.contest.pump(), self.contest.photo
        if (ran and not self.contest.running) or "ready" in self.contest.heard:
            self.changed()
        elif heard or (photo is not None and self.app.screen is self and photo.tick(passed)):
            self.draw()

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        """Draw what is shown now; while lanes are timed the line above the keys alone."""
        self._draw_said()
        if self.contest.bout is None or not self.contest.bout.timing:
            self.draw_race()

    def draw_race(self) -> None:
        """Draw the lanes and their numbers."""
        contest = self.contest
        sorted_lanes = tuple(f.lane for f in ranked(contest.bout.figures(), self.sort)) if contest.finished else ()
        views = race_words.lane_views(contest)
        runs = contest.bout.at if contest.running else None  # its text is the one to follow
        self.query_one(RaceLanes).show(views, runs.lane if runs else self.lane, self.view, sorted_lanes, self.back)
        series = contest.series()
        ends = [found[-1] for _, found in series if found]
        right = contest.photo.length if contest.photo is not None else max((x for x, _ in ends), default=0.0)
        most = contest.photo.most if contest.photo is not None else max((y for _, y in ends), default=0)
        self.query_one(RacePlot).show(series, right, most, race_words.plot_state(contest))
        self.query_one(RaceTable).show(race_words.scores(contest, self.sort))
        self.query_one("#race-top", Sides).show(*race_words.top(contest))

    def _draw_said(self) -> None:
        said = self.query_one("#race-said", Lines)
        rows = race_words.status(self.contest, self.message, self.size.width)
        if said.styles.height is None or said.styles.height.value != len(rows):
            said.styles.height = len(rows)
        said.show(*rows)

    def say(self, message: str) -> None:
        self.message = message
        self._draw_said()

    def changed(self, message: str = "") -> None:
        """Draw it, and after what it did to the layout again."""
        self.message = message
        bout = self.contest.bout
        nothing = bout is None or not (bout.running or bout.result.complete)
        self.set_class(nothing or bout.timing, "before")
        self.draw()
        self.refresh_bindings()
        self.call_after_refresh(self.draw)

    # -- what widgets say -------------------------------------------------------------------------
    def on_race_lanes_picked(self, event: RaceLanes.Picked) -> None:
        self.lane = event.lane
        self.changed(self.message)

    def on_prompt_box_sent(self, event: PromptBox.Sent) -> None:
        text = event.text.strip()
        if text.startswith("/lanes"):
            before = self.contest.setup
            self.set_up(lambda: before.with_lanes(text.removeprefix("/lanes").strip()), "enter starts")
            if self.contest.setup is not before:
                self.query_one(PromptBox).put(before.prompt)
                self.set_focus(None)
        elif text.startswith("/") and not text.startswith("//"):
            self.say("There is one command here: /lanes autoregressive,pld,draft:shape=tree sets the lanes.")
        elif self.contest.running:
            self.say("The race is still running: esc stops it.")
        else:
            self.action_go()

    def _complete(self, text: str) -> list[str]:
        from engines import methods

        if not text.startswith("/lanes "):
            return ["/lanes "] if text and "/lanes ".startswith(text) else []
        before, comma, last = text.removeprefix("/lanes ").rpartition(",")
        return [f"/lanes {before}{comma}{spec.id}" for spec in methods.specs() if spec.id.startswith(last)]

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self._seen = monotonic()
        self.call_after_refresh(self.draw)
