"""Step: a run phase by phase, for those who teach and those who learn. Draws any run, live or recorded."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Key

from engines.report.run_state import RunState
from engines.report.wording import between, counted
from engines.request import Request
from spec_tui.learn.glossary_entries import word_of
from spec_tui.present.playback import speed_words
from spec_tui.present.step.branching import going_on, uses_past_answers
from spec_tui.present.step.phases import StepPosition, emits, event_of, number_of
from spec_tui.present.step.player import SPEEDS, StepPlayer
from spec_tui.present.text import one_line
from spec_tui.present.token_styles import BUSY, OUTCOME, REJECTED_KEPT, spans
from spec_tui.session.chat_session import ChatSession, Turn
from spec_tui.session.settings import ChatSettings
from spec_tui.tui.actions import KEY_NAMES, Action, HasActions, can
from spec_tui.tui.widgets.large_numbers import LargeNumbers
from spec_tui.tui.widgets.step_panels import Doing, Explaining, PhaseBar, SoFar, StepPanel, StepTree, Timeline
from spec_tui.tui.widgets.strip_panel import Backdrop, Divider, Pane, SplitLine

_WORDS = {"context": "context", "draft": "draft", "tree": "attention mask", "verify": "verify", "accept": "accepted",
          "keep": "KV cache"}
"""What the glossary calls the phases."""
TICKS = 10  # a second, of the clock while playing
_FIGURES = ("round", "drafted", "accepted", "gained")


class StepScreen(HasActions, Backdrop):
    """Goes through a run.

    Args:
        run: what it goes through.
        title: whose run it is.
        place: where to begin.
        session: of a conversation: its engine may be asked for more. The screen below takes in what it says.
        turn: of a conversation: the turn whose run it is; the run may still grow.
    """

    CSS_PATH: ClassVar = ["step.tcss"]
    AUTO_FOCUS = ""
    TIMELINE: ClassVar = Timeline
    PALETTE = "Step: "
    ACTIONS = (
        Action(id="step.play", run="play", keys="space", label="Play", footer=True, help="Play, pause"),
        Action(id="step.phase", run="phase(1)", keys="full_stop", label="Phase", footer=True, help="The next phase"),
        Action(id="step.phase-back", run="phase(-1)", keys="comma", label="Previous phase", help="The previous phase"),
        Action(id="step.round", run="round(1)", keys="right", label="Round", footer=True, help="The next round"),
        Action(id="step.round-back", run="round(-1)", keys="left", label="Previous round", help="The previous round"),
        Action(id="step.begin", run="ends(-1)", keys="home", label="Begin", help="The beginning"),
        Action(id="step.end", run="ends(1)", keys="end", label="End", help="The end"),
        Action(id="step.faster", run="speed(1)", keys="greater_than_sign", label="Faster", help="Play faster"),
        Action(id="step.slower", run="speed(-1)", keys="less_than_sign", label="Slower", help="Play slower"),
        Action(id="step.deeper", run="deeper(True)", keys="x", label="Deeper", footer=True, help="Explain more deeply"),
        Action(id="step.simpler", run="deeper(False)", keys="X", label="Simpler", help="Explain more simply"),
        Action(id="step.more", run="scroll(1)", keys="pagedown", label="Read on", help="The rest of the explanation"),
        Action(id="step.less", run="scroll(-1)", keys="pageup", label="Read back",
               help="The beginning of the explanation"),
        Action(id="step.up", run="move(1)", keys="up", label="Table up", help="Scroll a long table up"),
        Action(id="step.down", run="move(-1)", keys="down", label="Table down", help="Scroll a long table down"),
        Action(id="step.predict", run="predict", keys="G", label="Guess", footer=True,
               help="Guess how many tokens will be accepted; digits answer, then the round shows it"),
        Action(id="step.mark", run="mark", keys="k", label="Bookmark", help="Set or remove a bookmark at this round"),
        Action(id="step.next-mark", run="next_mark(1)", keys="shift+right", label="Next bookmark",
               help="To the next bookmark"),
        Action(id="step.mark-before", run="next_mark(-1)", keys="shift+left", label="Previous bookmark",
               help="To the previous bookmark"),
        Action(id="step.go", run="type_round", keys="number_sign", label="Go to", help="Type the number of a round"),
        Action(id="step.view", run="view", keys="v", label="View",
               help="Show or hide rejected drafts, struck through in the text"),
        Action(id="step.enter", run="enter", keys="enter", label="Go", palette="",
               help="Go to the round that was typed"),
        Action(id="step.leave", run="leave", keys="escape", label="Back", footer=True,
               help="Back to where you came from"),
        Action(id="step.digit", run="digit", digits=range(10), label="Digit", palette="",
               help="A guess, or a digit of the round to go to"),
        Action(id="step.branch", run="branch", keys="B", label="Branch", footer=True,
               when=can("branch"), help="Change something at this round, continue from here, and compare both "
                                        "continuations"),
        Action(id="step.every-row", run="every_row", keys="A", label="All rows",
               when=can("detail"), help="Run the answer again, and record what the target predicts at every row"),
    )

    def __init__(
        self, run: RunState, title: str = "", *, place: StepPosition | None = None,
        session: ChatSession | None = None, turn: Turn | None = None,
    ) -> None:
        super().__init__()
        self.player, self.run_title = StepPlayer(run, place), title
        self.session, self.turn = session, turn
        self.rerun: Turn | None = None  # the same answer, with every row recorded
        self._awaited = False  # how the rerun ended is still to be said
        self.begins_presenting, self.message, self.pressed = False, "", ""
        self.typed: str | None = None  # digits of a round that is being typed

    @classmethod
    def of_turn(cls, session: ChatSession, turn: Turn, index: int | None = None) -> StepScreen:
        """The screen for a turn of a conversation, from the round of the token ``index`` on, else from the first."""
        run = turn.run
        number = run.tokens[index].round + 1 if index is not None else min(1, len(run.rounds))
        return cls(run, turn.prompt, place=StepPosition(number), session=session, turn=turn)

    def compose(self) -> ComposeResult:
        yield SplitLine(id="step-top")
        yield PhaseBar(id="phases")
        yield LargeNumbers(_FIGURES, id="figures")
        with Pane(id="step-body"):
            with Pane(classes="column", id="picture"):
                yield from self.picture()
            yield Divider()
            with Pane(classes="column", id="teaching"):
                yield from self.teaching()
        with Pane(id="timeline-pane"):
            yield self.TIMELINE(id="timeline")
        yield from self.foot(SplitLine(id="step-said"))

    def picture(self) -> ComposeResult:
        """The panels that show the round."""
        yield Doing(id="doing")
        yield StepTree(id="step-tree")

    def teaching(self) -> ComposeResult:
        """The panels beside them."""
        yield Explaining(id="explaining")
        yield SoFar(id="so-far")

    def on_mount(self) -> None:
        self._keep_rejected(self.app.view == REJECTED_KEPT)
        self.begins_presenting = self.app.presenter
        self.set_interval(1 / TICKS, self._tick)

    @property
    def word_here(self) -> str:
        place = self.player.place
        own = emits(self.player.run, place)
        return word_of(own[-1].kind) if place.phase == "correct" and own else _WORDS.get(place.phase, "")

    # -- time -------------------------------------------------------------------------------------
    def _tick(self) -> None:
        changed = self.refresh_run()
        was = self.player.clock.playing
        if self.player.tick(1 / TICKS) or changed or was != self.player.clock.playing:
            self.draw()
        if self._awaited and self.rerun is not self.session.measuring:
            self._awaited = False
            self._say_how_it_ended(self.rerun.run)

    def refresh_run(self) -> bool:
        """Take in what the run has become; whether it has changed."""
        run = self._latest()
        if run is self.player.run:
            return False
        self.player.update(run)
        return True

    def _latest(self) -> RunState:
        """The turn's run as it is now, or the same text made again in more detail."""
        if self.turn is None:
            return self.player.run
        made = self.rerun.run if self.rerun is not None else None
        better = made is not None and made.finished is not None and _same_text(made, self.turn.run)
        return made if better else self.turn.run

    def _say_how_it_ended(self, made: RunState) -> None:
        """What came of making the answer again."""
        if made.finished is None:
            self.rerun = None
            self.say(f"The second run failed: {one_line(made.failed.message)}." if made.failed else "It was stopped.")
        elif _same_text(made, self.turn.run):
            now, before = len(made.rounds), len(self.turn.run.rounds)
            why = "past answers are left out" if uses_past_answers(self.turn.run) else "drafts of other sizes"
            rounds = "" if now == before else f"; in {now} rounds, not {before}: {why}"
            self.say(f"Same text, with every row{rounds}.")
        else:
            self.rerun = None
            self.say("The text came out differently this time, so the first run stays.")

    # -- drawing ----------------------------------------------------------------------------------
    def draw(self) -> None:
        airy = self.has_class("presenting")
        for panel in self.query(StepPanel):
            panel.airy = airy
            panel.follow(self.player)
        self._draw_top()
        self._draw_said()
        if airy:
            self._draw_figures()

    def _draw_top(self) -> None:
        player, number = self.player, partial(number_of, self.player.run)
        here = f"round {number(player.place.round)} of {number(player.rounds)}" if player.place.round else "prefill"
        playing = BUSY if player.clock.playing else "‖"
        right = f"{here} · {playing} {speed_words(player.clock.speed)} · {'in detail' if player.deep else 'basics'} "
        started = player.run.started
        engine = f"  {started.engine}" if started is not None else ""
        lossy = " LOSSY" if started is not None and started.lossy else ""
        left = [(" spec-tui ", "title"), (" step ", "strong"), (one_line(self.run_title, 60), "muted"),
                *spans(one_line(engine, 24) + lossy, "text")]
        self.query_one("#step-top", SplitLine).show(left, [(right, "text")])

    def _draw_said(self) -> None:
        if self.typed is not None:
            row = [("   round ", "strong"), (self.typed or "…", "accent"), ("  enter goes there", "muted")]
        else:
            row = [("   ", "text"), *spans(one_line(self.message or self._damage), "text")]
        keys = [(f" {self.pressed} ", "title-here")] if self.has_class("presenting") and self.pressed else []
        self.query_one("#step-said", SplitLine).show(row, keys)

    @property
    def _damage(self) -> str:
        """What is missing right before this round, else what is wrong with the trace, until the chat forgets it."""
        run, here = self.player.run, self.player.place.round
        if here and run.missing_before(here - 1):
            before = f"between round {number_of(run, here - 1)} and" if here > 1 else "before"
            return f"What comes {before} round {number_of(run, here)} is missing in this trace."
        replayed = self.session is not None and self.session.client.capabilities.clock
        return self.session.problem.message if replayed and self.session.problem is not None else ""

    def _draw_figures(self) -> None:
        run, here = self.player.run, self.player.place.round
        event = event_of(run, here)
        hidden = self.player.place.phase in ("context", "draft", "tree", "verify")
        drafted = 0 if event is None else "-" if event.drafted is None else event.drafted
        accepted = "-" if event is None or hidden or event.accepted is None else str(event.accepted)
        gained = "-" if event is None or hidden else str(len(event.emitted))
        if self.player.place.phase == "context":
            drafted = "-"
        self.query_one(LargeNumbers).show(number_of(run, here), drafted, accepted, gained)

    def say(self, message: str) -> None:
        """A sentence above the keys, until the next move."""
        self.message = message
        self._draw_said()

    @property
    def free(self) -> bool:
        """Whether a click may go to another place."""
        return True

    def on_timeline_picked(self, event: Timeline.Picked) -> None:
        if self.free:
            self.player.jump(event.number)
            self.moved()

    def on_phase_bar_picked(self, event: PhaseBar.Picked) -> None:
        if self.free:
            self.player.clock.playing = False
            self.player.to_phase(event.phase)
            self.moved()

    # -- keys -------------------------------------------------------------------------------------
    def moved(self) -> None:
        """The place changed by hand: forget what was said, and draw."""
        self.message = ""
        self.query_one(Explaining).scrolled = self.query_one(Doing).scrolled = 0
        self.draw()

    def on_key(self, event: Key) -> None:
        name = KEY_NAMES.get(event.key, event.character if event.is_printable else event.key)
        self.pressed = name or event.key
        if self.has_class("presenting"):
            self._draw_said()

    def action_play(self) -> None:
        self.player.clock.playing = not self.player.clock.playing
        self.moved()

    def action_phase(self, step: int) -> None:
        self.player.clock.playing = False
        moved = self.player.forward() if step > 0 else self.player.back()
        self.moved()
        if not moved:
            self.say(self._why_not(step))

    def _why_not(self, step: int) -> str:
        if step < 0:
            return "This is the beginning."
        if self.player.asks:
            return f"How many will be accepted? Press {between(0, self.player.most())}; . again skips."
        if self.player.run.running:
            return "The run goes on: more will come."
        return f"Guesses: {self.player.score}." if self.player.guesses else "This is the end."

    def action_round(self, step: int) -> None:
        self.player.clock.playing = False
        self.player.jump(self.player.place.round + step)
        self.moved()

    def action_ends(self, which: int) -> None:
        self.player.clock.playing = False
        if which > 0:
            self.player.end()
        else:
            self.player.home()
        self.moved()
        if which > 0 and self.player.guesses:
            self.say(f"Guesses: {self.player.score}.")

    def action_speed(self, step: int) -> None:
        self.player.clock.faster(step, SPEEDS)
        self.draw()
        self.say(f"speed {speed_words(self.player.clock.speed)}")

    def action_deeper(self, deep: bool) -> None:
        self.player.deep = deep
        self.moved()

    def action_scroll(self, step: int) -> None:
        panel = self.query_one(Explaining)
        panel.scroll(step * max(1, panel.size.height - 3))

    def action_move(self, step: int) -> None:
        self.query_one(Doing).scroll(-step)

    def action_predict(self) -> None:
        self.player.guessing = not self.player.guessing
        self.moved()
        self.say("Guessing is on: before a draft is verified, say how many will be accepted."
                 if self.player.guessing else f"Off: {self.player.score}." if self.player.guesses else
                 "Guessing is off.")

    def action_digit(self, digit: int) -> None:
        if self.typed is not None:
            self.typed = (self.typed + str(digit))[:6]
            self._draw_said()
        elif not self.player.guess(digit):
            self.say(self._no_guess())
        else:
            self.moved()

    def _no_guess(self) -> str:
        if not self.player.guessing:
            return "G turns guessing on; then digits are guesses. Digits alone go to a round."
        if self.player.asks:
            most = self.player.most()
            return f"At most {counted(most, 'token')} can be accepted: press {between(0, most)}."
        return "Nothing to guess here: . goes on to the next draft."

    def _keep_rejected(self, keep: bool) -> None:
        for panel in self.query(Doing):
            panel.keeps_rejected = keep

    def action_view(self) -> None:
        """Rejected drafts in the text, or not."""
        keep = not self.query_one(Doing).keeps_rejected
        self._keep_rejected(keep)
        self.app.choose_view(REJECTED_KEPT if keep else OUTCOME)
        self.draw()
        self.say("rejected drafts stay in the text" if keep else "rejected drafts leave the text")

    def action_mark(self) -> None:
        there = self.player.mark()
        self.moved()
        self.say(f"bookmark {'set' if there else 'removed'}; shift+→ goes to the next one")

    def action_next_mark(self, step: int) -> None:
        if self.player.next_mark(step):
            self.moved()
        else:
            self.say("No bookmarks: k sets one at this round.")

    def action_type_round(self) -> None:
        self.typed = ""
        self._draw_said()

    def action_enter(self) -> None:
        typed, self.typed = self.typed, None
        if typed:
            self.player.clock.playing = False
            numbers = [0, *(event.index for event in self.player.run.rounds)]
            self.player.jump(bisect_left(numbers, int(typed)))
        self.moved()
        if typed and int(typed) not in numbers:
            last = int(typed) > numbers[-1]
            self.say(f"There is no round {int(typed)}: {numbers[-1]} is the last." if last else
                     f"Round {int(typed)} is missing in this trace.")

    def action_leave(self) -> None:
        """Undo one thing: a number half typed, presenter mode; else stop what runs for this screen, and close."""
        if self.typed is not None:
            self.typed = None
            self._draw_said()
        elif self.has_class("presenting") and not self.begins_presenting:
            self.app.present(False)
        else:
            if self.rerun is not None and self.rerun is self.session.measuring:
                self.session.cancel()
            self.dismiss(None)

    # -- what needs the engine --------------------------------------------------------------------
    def request(self) -> Request:
        """What the turn was asked with, its engine and options as they came out."""
        started = self.turn.run.started
        if started is None:
            return self.turn.request
        return replace(self.turn.request, engine=started.engine, options=dict(started.options))

    def _refused(self) -> str:
        """Why the engine cannot be asked now; "" where it can."""
        return self.session.blocked_reason or self.session.foreign(self.turn.run)

    def action_every_row(self) -> None:
        """Make the answer again with all rows recorded."""
        refused = self._refused() or ("All rows are recorded already." if self.player.run is not self.turn.run else "")
        if refused:
            self.say(refused)
            return
        self.session.measure(self.turn.prompt, replace(self.request(), detail=True), "every row")
        self.rerun, self._awaited = self.session.measuring, True
        self.say("Running the answer again, every row recorded …; esc stops it and goes back")

    def action_branch(self) -> None:
        """Choose what to change at this round."""
        run, here = self.player.run, self.player.place.round
        refused = self._refused() or ("" if here else "A branch begins at a round: → goes to one.")
        if not refused and any(map(run.missing_before, range(here))):
            refused = "The text before this round is not known: something of it is missing in the trace."
        if refused:
            self.say(refused)
            return
        from spec_tui.tui.screens.lane import ChangeScreen

        self.player.clock.playing = False
        settings = replace(ChatSettings.from_request(self.request()), model=self.session.settings.model)
        self.app.push_screen(ChangeScreen(settings, self.session.ready), self._branch)

    def _branch(self, settings: ChatSettings | None) -> None:
        if settings is None or (refused := self._refused()):
            self.say(refused if settings is not None else "")
            return
        from spec_tui.tui.screens.branch import BranchScreen

        number = min(self.player.place.round, len(self.turn.run.rounds))
        if self.player.run is not self.turn.run:  # rounds are counted in the run that is stepped through
            self.turn = replace(self.turn, run=self.player.run)
            number = self.player.place.round
        asked = self.request()
        changed = going_on(asked, self.turn.run, number, settings.request(asked.conversation, self.session.ready))
        self.session.measure(self.turn.prompt, changed, "branch")
        self.app.push_screen(BranchScreen(
            self.session, self.turn, asked=asked, number=number, branch=self.session.measuring,
            step=lambda branch: self.app.push_screen(StepScreen.of_turn(self.session, branch)),
        ))


def _same_text(a: RunState, b: RunState) -> bool:
    return [t.emitted.token for t in a.tokens] == [t.emitted.token for t in b.tokens]


