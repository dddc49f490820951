"""Step through an answer of the conversation: what needs the engine, beside what any run allows."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import Binding

from engines.report.run_state import RunState
from engines.request import Request
from spec_tui.present.step.branching import going_on
from spec_tui.present.step.phases import StepPosition
from spec_tui.present.text import one_line
from spec_tui.session.replay_client import ReplayClient
from spec_tui.tui.chat_session import ChatSession
from spec_tui.tui.screens.step import StepScreen
from spec_tui.tui.settings import ChatSettings
from spec_tui.tui.turns import Turn

EVERY_ROW, OTHER_FUTURE = "every row of the answer", "another future"


class LiveStep(StepScreen):
    """Steps through a turn; the engine can make it again in more detail, or go on from a round with something changed.

    Args:
        sitting: its engine; the screen below takes in what it says.
        turn: whose run it is.
    """

    BINDINGS: ClassVar = [
        Binding("B", "branch", "Branch", id="step.branch",
                tooltip="Change something at this round, run on from here, and see both futures"),
        Binding("w", "every_row", "All rows", id="step.every-row", show=False,
                tooltip="Run the answer again, and record what the target has at every row"),
    ]

    def __init__(self, sitting: ChatSession, turn: Turn, place: StepPosition, presenter: bool = False) -> None:
        super().__init__(turn.run, turn.prompt, place=place, look=self._now, presenter=presenter)
        self.sitting, self.turn = sitting, turn
        self.again: Turn | None = None  # the same answer, with every row recorded

    def _now(self) -> RunState:
        """The turn's run, or the same made again in more detail."""
        if self.again is None or self.again.run.finished is None:
            return self.turn.run
        return self.again.run if _same(self.again.run, self.turn.run) else self.turn.run

    def _tick(self) -> None:
        """As of any run; and say how the run in more detail ended."""
        again = self.again
        super()._tick()
        if again is None or again is self.sitting.measuring or not self.message.startswith("Running"):
            return
        if again.run.finished is None:
            failed = again.run.failed
            self.again = None
            self.say(f"It did not work: {one_line(failed.message)}." if failed is not None else "It was stopped.")
        elif _same(again.run, self.turn.run):
            now, before = len(again.run.rounds), len(self.turn.run.rounds)
            rounds = "" if now == before else f"; in {now} rounds, not {before}: drafts were sized anew"
            self.say(f"The same text, with every row{rounds}.")
        else:
            self.again = None
            self.say("The text came out differently this time, so the first run stays.")

    def request(self) -> Request:
        """What the turn was asked with, its engine and options as they came out."""
        started = self.turn.run.started
        if started is None:
            return self.turn.request
        return replace(self.turn.request, engine=started.engine, options=dict(started.options))

    def _refused(self) -> str:
        """Why the engine cannot be asked now; "" where it can."""
        if self.sitting.phase != "ready":
            return "The engine is not ready."
        return self.sitting.still if self.sitting.busy else ""

    def action_every_row(self) -> None:
        """Make the answer again with all rows recorded."""
        refused = self._refused() or ("It is recorded already." if self.player.run is not self.turn.run else "")
        if refused:
            self.say(refused)
            return
        self.sitting.measure(self.turn.prompt, replace(self.request(), detail=True), EVERY_ROW)
        self.again = self.sitting.measuring
        self.say("Running the answer again, every row recorded …")

    def action_branch(self) -> None:
        """Choose what to change at this round."""
        refused = self._refused() or ("" if self.player.place.round else "A branch begins at a round: → goes to one.")
        if refused:
            self.say(refused)
            return
        from spec_tui.tui.screens.lane import ChangeScreen

        self.player.playing = False
        self.app.push_screen(ChangeScreen(ChatSettings.from_request(self.request()), self.sitting.ready), self._branch)

    def _branch(self, settings: ChatSettings | None) -> None:
        if settings is None or (refused := self._refused()):
            self.say(refused if settings is not None else "")
            return
        from spec_tui.tui.screens.branch import BranchScreen

        number = min(self.player.place.round, len(self.turn.run.rounds))
        if self.player.run is not self.turn.run:  # rounds are counted in the run that is stepped through
            self.turn = Turn(self.turn.prompt, self.turn.request, self.player.run)
            number = self.player.place.round
        asked = self.request()
        changed = going_on(asked, self.turn.run, number, settings.request(asked.conversation, self.sitting.ready))
        self.sitting.measure(self.turn.prompt, changed, OTHER_FUTURE)
        self.app.push_screen(BranchScreen(self.sitting, self.turn, asked, number, self.sitting.measuring))

    def action_leave(self) -> None:
        """As of any run; a run for this screen is stopped first."""
        if self.again is not None and self.again is self.sitting.measuring:
            self.sitting.cancel()
        super().action_leave()


def _same(a: RunState, b: RunState) -> bool:
    """Whether two runs wrote the same tokens."""
    return [t.emitted.token for t in a.tokens] == [t.emitted.token for t in b.tokens]


def stepping(sitting: ChatSession, turn: Turn, index: int | None = None, presenter: bool = False) -> StepScreen:
    """The screen for a turn, from the round of a token on, else from the first; a recorded one has no engine to ask."""
    run = turn.run
    place = StepPosition(run.tokens[index].round + 1 if index is not None else min(1, len(run.rounds)))
    if isinstance(sitting.client, ReplayClient):
        return StepScreen(run, turn.prompt, place=place, look=lambda: turn.run, presenter=presenter)
    return LiveStep(sitting, turn, place, presenter)
