"""Race: engines side by side, fair while they are timed, and afterwards all on one clock; or recorded runs."""

from __future__ import annotations

from operator import attrgetter
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from engines.errors import SpecError
from engines.race.interval import ENOUGH
from engines.race.lanes import Lane, parse_lanes
from spec_tui.present import token_styles
from spec_tui.present.narration import question
from spec_tui.present.on_screen import failure
from spec_tui.present.playback import speed_words
from spec_tui.present.text import one_line
from spec_tui.session.chat_session import ChatSession
from spec_tui.session.history import Entry
from spec_tui.session.race_state import RaceState
from spec_tui.tui import race_view, slash
from spec_tui.tui.actions import BY_OUTCOME, Action, HasActions
from spec_tui.tui.race_controller import REPEATS, RaceController
from spec_tui.tui.widgets.prompt_box import Choices, PromptBox
from spec_tui.tui.widgets.race_lanes import RaceLanes
from spec_tui.tui.widgets.race_numbers import SORTS, RacePlot, RaceTable, ranked
from spec_tui.tui.widgets.strip_panel import Backdrop, Divider, Lines, Pane, SplitLine

_RUNNING, _IDLE, _FINISHED, _CAN_RACE, _BEFORE, _AGAIN = (
    attrgetter(f"controller.{state}") for state in ("running", "idle", "finished", "can_race", "before", "again"))
MOVING, WATCHING, RESTING = 1 / 15, 1 / 4, 1 / 10  # seconds between two frames: of what moves, of timed lanes, else


class RaceScreen(HasActions, Backdrop):
    """Draws a ``RaceController`` over a session's engine; the chat below takes in what that says.

    Args:
        session: that of the chat.
        recorded, speed: as in ``RaceController``.
        before: the controller of the screen that was left, whose race is shown again.
        paper: name of a paper's table whose rows are the lanes; "" for none.
    """

    CSS_PATH: ClassVar = ["race.tcss"]
    AUTO_FOCUS = ""
    PALETTE: ClassVar = "Race: "
    word_here = "lane"
    ACTIONS = (
        Action(id="race.stop", run="stop", keys="escape", label="Stop", footer=True, when=_RUNNING,
               help="Stop the race; complete runs are kept"),
        Action(id="race.restart", run="restart", keys="ctrl+r,f4", label="Restart", footer=True,
               palette="Restart the engine", help="Start an engine again that is dead or does not stop",
               when=attrgetter("controller.session.restartable")),
        Action(id="race.leave", run="leave", keys="escape", label="Back", footer=True, when=attrgetter("can_leave"),
               help="Leave the prompt, the enlarged table or the difference; then go back to the chat"),
        Action(id="race.go", run="go", keys="enter", label="Start", footer=True, when=_BEFORE, help="Start the race"),
        Action(id="race.open", run="open", keys="enter", label="Step", footer=True, when=_FINISHED,
               help="Step through the lane's run, round by round"),
        Action(id="race.play", run="clock('toggle')", keys="space", label="Play", footer=True, when=_FINISHED,
               help="Photo finish: play, pause, play again"),
        Action(id="race.faster", run="speed(1)", keys="greater_than_sign", label="Faster", when=_FINISHED,
               help="Photo finish: twice as fast"),
        Action(id="race.slower", run="speed(-1)", keys="less_than_sign", label="Slower", when=_FINISHED,
               help="Photo finish: half as fast"),
        Action(id="race.end", run="clock('skip')", keys="end", label="End", when=_FINISHED,
               help="Photo finish: to its end"),
        Action(id="race.begin", run="clock('rewind')", keys="home", label="From the start", when=_FINISHED,
               help="Photo finish: from the start"),
        Action(id="race.again", run="again", keys="R", label="Again", when=_AGAIN, help="Race again"),
        Action(id="race.add", run="add", keys="plus,equals_sign", label="Add", when=_IDLE,
               help="Add a lane: an engine with its options"),
        Action(id="race.remove", run="remove", keys="minus", label="Remove", when=_IDLE, help="Remove the lane"),
        Action(id="race.diff", run="diff", keys="D", label="Diff", footer=True, when=_FINISHED,
               help="Go to the first token at which two lanes differ; again: the next pair"),
        Action(id="race.sort", run="sort", keys="S", label="Sort", footer=True, when=_FINISHED,
               help="Sort the table by the next column"),
        Action(id="race.numbers", run="numbers", keys="m", label="Numbers", footer=True, when=_FINISHED,
               help="The table alone, and back"),
        Action(id="race.view", run="view", keys="v", label="View", help=BY_OUTCOME),
        Action(id="race.repeats", run="repeats", keys="asterisk", label="Repeats", when=_IDLE,
               help="How often each lane runs; fewer than 6 repeats tell only large differences"),
        Action(id="race.mode", run="mode", keys="f", label="Fair or live", when=_IDLE,
               help="Fair draws nothing while a lane runs; live shows lanes as they run, and its numbers are not "
                    "comparable"),
        Action(id="race.prompt", run="prompt", keys="i", label="Prompt", when=_CAN_RACE,
               help="Go to the prompt; /lanes a,b,c there sets all lanes"),
        Action(id="race.showcase", run="showcase", keys="ctrl+o,f3", label="Examples", when=_IDLE,
               help="Example prompts, each with what it shows"),
        Action(id="race.papers", run="papers", keys="L", label="Papers", when=_IDLE, palette="Papers' tables",
               help="Tables of papers: what they show, and their rows as lanes"),
        Action(id="race.history", run="history", keys="h", label="History", when=_IDLE,
               help="Races of this and earlier sessions: show, rename, delete"),
        Action(id="race.export", run="export", keys="e", label="Export", when=_AGAIN,
               help="Save numbers (JSON, Markdown, CSV) and a trace of every run in a folder here"),
        Action(id="race.copy", run="copy", keys="c", label="Copy", when=_CAN_RACE,
               help="Copy the command line for this race"),
        Action(id="race.next", run="focus_lane(1)", keys="right,down", label="Next lane", palette="",
               help="The next lane"),
        Action(id="race.before", run="focus_lane(-1)", keys="left,up", label="Previous lane", palette="",
               help="The previous lane"),
        Action(id="race.up", run="scroll(1)", keys="pageup", label="Scroll up", palette="",
               help="Earlier lines of the texts, or of the numbers"),
        Action(id="race.down", run="scroll(-1)", keys="pagedown", label="Read on", palette="",
               help="Later lines of the texts, or of the numbers"),
        Action(id="race.help", run="app.help", keys="f1", label="Help", footer=True, palette="", help="All keys"),
        Action(id="race.lane", run="lane", digits=range(1, 10), label="Lane", palette="",
               help="Go to the lane with this number"),
    )

    def __init__(
        self, session: ChatSession, recorded: RaceState | None = None, speed: float | None = None,
        before: RaceController | None = None, paper: str = "",
    ) -> None:
        super().__init__()
        self.controller = before or RaceController(session, recorded, speed)
        self.controller.resume()
        self.message = self.controller.take_paper(paper) if paper else ""
        self.lane = 0  # that has the focus
        self.sort = 0
        self.view = token_styles.OUTCOME
        self.back = 0  # lines that all texts are scrolled up
        self._drawn_at = monotonic()
        self._seen: tuple = ()  # of the race and the session, at the last look
        self._changes = self.controller.changes
        self.add_class("before")

    def compose(self) -> ComposeResult:
        yield SplitLine(id="race-top")
        yield RaceLanes(id="race-lanes")
        with Pane(id="race-below"):
            yield RacePlot(id="race-plot")
            yield Divider(id="race-divider")
            yield RaceTable(id="race-table")
        yield Choices()
        with Horizontal(id="race-ask"):
            yield Static("›", id="race-mark", markup=False)
            yield PromptBox(self._complete, id="race-prompt", placeholder="The prompt for all lanes")
        yield from self.foot(Lines(id="race-said"))

    def on_mount(self) -> None:
        self.view = self.app.view
        self.query_one("#race-ask").display = self.controller.can_race
        self._show_prompt()
        self.call_after_refresh(self.changed, self.message)
        self._next_frame()

    # -- time -------------------------------------------------------------------------------------
    def _next_frame(self) -> None:
        race, replay = self.controller.race, self.controller.replay
        if race is not None and race.timing:
            wait = WATCHING
        else:
            moves = self.controller.running or (replay is not None and replay.clock.playing)
            wait = MOVING if moves else RESTING
        self.set_timer(wait, self._frame)

    def _frame(self) -> None:
        self.look()
        self._next_frame()

    def look(self) -> None:
        """Let the clock of the photo finish go on, and draw what that and the engine changed. While lanes are timed
        that is one line, when the next one begins."""
        now = monotonic()
        passed, self._drawn_at = now - self._drawn_at, now
        controller, session, replay = self.controller, self.controller.session, self.controller.replay
        seen = (controller.race, controller.running, session.ready, session.stuck, session.phase)
        arrived, self._changes = controller.changes != self._changes, controller.changes
        if seen != self._seen:
            ended = self._seen and self._seen[1] and not controller.running
            kept = self.message if not self._seen or self._seen[-1] == session.phase else ""
            self._seen = seen
            controller.follow_model()
            self._keep_lane()
            self.changed(controller.unsaved if ended else kept)
        elif arrived or (replay is not None and self.app.screen is self and replay.clock.tick(passed)):
            self.draw()
        elif session.phase == "loading":
            self._draw_status()

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        """Draw what is shown now; while lanes are timed the line above the keys alone."""
        self._draw_status()
        if self.controller.race is None or not self.controller.race.timing:
            self.draw_race()

    def draw_race(self) -> None:
        controller = self.controller
        race, replay = controller.race, controller.replay
        order = tuple(f.lane for f in ranked(race.figures(), self.sort)) if controller.finished else ()
        at = race.at if controller.running else None  # its text is the one to follow
        self.query_one(RaceLanes).show(
            race_view.lane_views(controller), at.lane if at else self.lane, self.view, order, self.back)
        series = controller.series()
        ends = [points[-1] for _, points in series if points]
        right = replay.clock.end if replay is not None else max((x for x, _ in ends), default=0.0)
        most = replay.most if replay is not None else max((y for _, y in ends), default=0)
        self.query_one(RacePlot).show(series, right, most, race_view.plot_state(controller))
        self.query_one(RaceTable).show(
            race if race is not None and race.result.complete else None, self.sort, self.has_class("numbers"))
        self.query_one("#race-top", SplitLine).show(*race_view.top(controller))

    def _draw_status(self) -> None:
        status = self.query_one("#race-said", Lines)
        rows = race_view.status(self.controller, self.message, self.size.width)
        if status.styles.height is None or status.styles.height.value != len(rows):
            status.styles.height = len(rows)
        status.show(*rows)

    def say(self, message: str) -> None:
        self.message = message
        self._draw_status()

    def changed(self, message: str = "") -> None:
        """Draw it, with a sentence, and after what it did to the layout again."""
        self.message = message
        race = self.controller.race
        nothing = race is None or not (race.running or race.result.complete)
        self.set_class(nothing or race.timing, "before")
        self.draw()
        self.refresh_bindings()
        self.call_after_refresh(self.draw)

    def on_screen_resume(self) -> None:
        self._drawn_at = monotonic()

    # -- the race ---------------------------------------------------------------------------------
    @property
    def can_leave(self) -> bool:
        """A recorded race is the first screen: there is nothing below it to go back to."""
        controller = self.controller
        return not controller.running and (
            controller.can_race or self.has_class("numbers") or controller.differing is not None)

    def action_go(self) -> None:
        self._enter(self.query_one(PromptBox).text)

    action_again = action_go  # an action of its own, under other conditions

    def _race(self, typed: str) -> None:
        if typed.strip():
            self.controller.change(prompt=slash.sent(typed))
        refused = self.controller.start()
        if not refused:
            self.set_focus(None)  # no cursor blinks while lanes are timed
            self.remove_class("numbers")
            self.back = 0
            self.draw_race()  # once, before the first lane begins
        self.changed(refused)

    def action_stop(self) -> None:
        self.controller.cancel()
        self.changed()

    def action_restart(self) -> None:
        self.controller.restart()
        self.changed()

    def action_leave(self) -> None:
        if isinstance(self.focused, PromptBox):
            self.set_focus(None)
        elif self.has_class("numbers"):
            self.action_numbers()
        elif self.controller.differing is not None:
            self.controller.show_difference(None)
            self.changed()
        else:
            self.dismiss(None)

    # -- what will run ----------------------------------------------------------------------------
    def set_up(self, message: str, **changes) -> None:
        """Take another setup and say so, or why it cannot be."""
        try:
            self.controller.change(**changes)
        except SpecError as error:
            message = failure(error)
        self._keep_lane()
        self.changed(message)

    def _keep_lane(self) -> None:
        """There may be fewer lanes than before."""
        self.lane = max(0, min(self.lane, len(self.controller.setup.lanes) - 1))

    def action_add(self) -> None:
        from spec_tui.tui.screens.lane import LaneScreen

        session = self.controller.session
        self.app.push_screen(LaneScreen(self.controller.settings, session.ready), self._added)

    def _added(self, lane: Lane | None) -> None:
        lanes = self.controller.setup.lanes
        if lane is not None:
            self.set_up(f"lane {len(lanes) + 1}: {one_line(lane.label)}", lanes=(*lanes, lane))

    def action_remove(self) -> None:
        setup, n = self.controller.setup, self.lane
        self.set_up(f"{setup.labels[n]} is removed", lanes=setup.lanes[:n] + setup.lanes[n + 1 :])

    def action_repeats(self) -> None:
        count = next((n for n in REPEATS if n > self.controller.setup.repeats), REPEATS[0])
        enough = "enough to tell differences from noise" if count >= ENOUGH else f"small differences need {ENOUGH}"
        self.set_up(f"{count} repeat{'s' * (count > 1)}; {enough}", repeats=count)

    def presented(self, on: bool) -> None:
        """Presenting begins or ends, here or on a screen above."""
        self.say("P ends presenting" if on else "")

    def action_mode(self) -> None:
        live = not self.controller.setup.live
        message = ("live: drawing takes time from the lanes, so the numbers will not be comparable" if live else
                   "fair: nothing is drawn while a lane runs; then all are shown on one clock")
        self.set_up(message, live=live)

    def action_prompt(self) -> None:
        box = self.query_one(PromptBox)
        box.select_all()  # another prompt or /lanes replaces it; an arrow key goes into it
        self.set_focus(box)  # at once: what is typed next is for it

    def on_prompt_box_sent(self, event: PromptBox.Sent) -> None:
        if self.controller.running:
            self.query_one(PromptBox).taken(event.text)
            self._show_prompt()  # what is raced
            self.say("The race is still running: esc stops it. ↑ in the prompt brings back what you typed.")
        else:
            self._enter(event.text)

    def _enter(self, typed: str) -> None:
        """Do what the prompt says: a command, or race it."""
        text = typed.strip()
        if (command := text.partition(" ")[0]) in ("/lanes", "/max"):
            given = text.removeprefix(command).strip()
            try:
                if command == "/lanes":
                    self.controller.change(lanes=parse_lanes([given]))
                else:
                    settings = self.controller.settings.with_sampling("max_new_tokens", given)
                    self.controller.change(most=settings.max_new_tokens)
            except SpecError as error:
                self.say(failure(error))
                return
            self._show_prompt()
            self.set_focus(None)
            self.set_up("R races again" if self.controller.again else "enter starts")
        elif slash.is_command(text):
            self.say("The commands here are /lanes and /max: /lanes autoregressive,pld,draft:shape=tree sets the "
                     "lanes, /max 64 the length of answers.")
        else:
            self._race(typed)

    def _show_prompt(self) -> None:
        """Put what is raced into the box."""
        self.query_one(PromptBox).put(slash.typed(self.controller.setup.prompt))

    def _complete(self, text: str) -> dict[str, str]:
        from engines import methods

        if not text.startswith("/lanes "):
            commands = {"/lanes ": "the engines of the race, separated by commas", "/max ": "new tokens of an answer"}
            return {name: words for name, words in commands.items() if text and name.startswith(text) and name != text}
        before, comma, last = text.removeprefix("/lanes ").rpartition(",")
        start = f"/lanes {before}{comma}"
        return {f"{start}{spec.id}": spec.title for spec in (*methods.specs(), *methods.of_other_programs())
                if spec.id.startswith(last)}

    def action_showcase(self) -> None:
        from spec_tui.tui.screens.showcase import ShowcaseScreen

        self.app.push_screen(ShowcaseScreen("starts the race"), self._showcase_chosen)

    def _showcase_chosen(self, choice: tuple[str, bool] | None) -> None:
        if choice is None:
            return
        self.query_one(PromptBox).put(choice[0])
        if choice[1]:
            self.action_go()

    def action_papers(self) -> None:
        from spec_tui.tui.screens.papers import PapersScreen

        screen = PapersScreen(session=self.controller.session)
        self.app.push_screen(screen, lambda name: self.take_paper(name) if name else None)

    def take_paper(self, name: str) -> None:
        """Take the rows of a paper's table as lanes."""
        refused = self.controller.take_paper(name)
        self._show_prompt()
        self.lane = 0
        self.changed(refused)

    # -- the result -------------------------------------------------------------------------------
    def action_open(self) -> None:
        from spec_tui.tui.screens.step import StepScreen

        run = self.controller.run(self.lane)
        if run is None:
            self.say("No run of this lane is complete.")
            return
        if self.controller.replay is not None:
            self.controller.replay.clock.playing = False
        self.app.push_screen(StepScreen(run.state, question(run.state.started)))

    def action_clock(self, what: str) -> None:
        getattr(self.controller.replay.clock, what)()
        self.changed()

    def action_speed(self, steps: int) -> None:
        clock = self.controller.replay.clock
        clock.faster(steps)
        self.changed(f"speed {speed_words(clock.speed)}" if clock.over else "")

    def action_diff(self) -> None:
        pair, self.back = self.controller.next_difference(), 0
        if pair is not None:
            self.lane = pair.second
            self.changed(race_view.difference(self.controller, pair))
        else:
            self.changed(race_view.no_difference(self.controller.race))

    def action_sort(self) -> None:
        self.sort = (self.sort + 1) % len(SORTS)
        column = SORTS[self.sort]
        self.changed("in the order of the lanes" if column is None else f"sorted by {column.title}, the best first")

    def action_numbers(self) -> None:
        self.toggle_class("numbers")
        self.refresh_bindings()
        self.call_after_refresh(self.draw)

    def action_view(self) -> None:
        self.view = token_styles.next_view(self.view)
        self.app.choose_view(self.view)
        self.back = self.query_one(RaceLanes).show_view(self.view)
        self.changed(f"view: {self.view}")

    def action_export(self) -> None:
        from spec_tui.export.race_report import export

        race = self.controller.race
        try:
            folder = export(race.result, race.asked)
            self.say(f"saved {folder.name}: numbers, and a trace of every run; in {folder.parent}")
        except OSError as error:
            self.say(f"could not save the race: {error.strerror or error}")
        except SpecError as error:
            self.say(f"could not save the race: {failure(error)}")

    def action_history(self) -> None:
        from spec_tui.tui.screens.history_list import HistoryScreen, when

        def chosen(entry: Entry | None) -> None:
            if entry is not None:
                refused = self.controller.show_kept(entry, when(entry.changed))
                self._show_prompt()
                self.lane = 0
                self.changed(refused)

        self.app.push_screen(HistoryScreen(self.controller.session.store, "races"), chosen)

    def action_copy(self) -> None:
        from spec_tui.session.shell_lines import compare_line

        race, session = self.controller.race, self.controller.session
        try:
            asked = race.asked if race is not None else self.controller.setup.race(
                self.controller.settings, session.ready)
        except SpecError as error:
            self.say(failure(error))
            return
        self.app.copy_to_clipboard(compare_line(asked, session.load_request))
        self.say("copied the command line" + (": compare always races fairly" if asked.live else ""))

    # -- lanes ------------------------------------------------------------------------------------
    def on_race_lanes_picked(self, event: RaceLanes.Picked) -> None:
        self.lane = event.lane
        self.changed(self.message)

    def action_lane(self, number: int) -> None:
        if number <= len(self.controller.setup.lanes):
            self.lane = number - 1
            self.changed(self.message)

    def action_focus_lane(self, step: int) -> None:
        self.lane = (self.lane + step) % max(1, len(self.controller.setup.lanes))
        self.changed(self.message)

    def action_scroll(self, pages: int) -> None:
        alone = self.has_class("numbers")
        page = self.query_one(RaceTable).size.height - 2 if alone else self.query_one(RaceLanes).size.height // 3
        self._scroll(pages * max(1, page))

    def _scroll(self, lines: int) -> None:
        """Show so many earlier lines of the texts, or of the numbers where these are alone."""
        if self.has_class("numbers"):
            self.query_one(RaceTable).scroll(-lines)
            return
        lanes = self.query_one(RaceLanes)
        self.back = max(0, min(self.back + lines, lanes.lines - max(1, lanes.size.height // 3)))
        self.changed(self.message)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(1)

    def on_mouse_scroll_down(self) -> None:
        self._scroll(-1)
