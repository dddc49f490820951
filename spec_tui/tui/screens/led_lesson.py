"""A lesson in a class: the teacher's session leads, the students' sessions follow its page and vote on how many drafted
tokens a round accepts, before it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from textual.app import ComposeResult
from textual.message import Message

from engines.core.tree import depths
from engines.report.events import Round
from engines.report.wording import between, counted
from spec_tui.learn.class_room import MOST
from spec_tui.learn.lesson_progress import LessonProgress
from spec_tui.present.rows import Row, bar, rows_of
from spec_tui.present.step.phases import StepPosition, event_of, phases_of
from spec_tui.present.step.player import BEFORE, StepPlayer
from spec_tui.tui.actions import Action
from spec_tui.tui.screens.lessons import LessonExplaining, LessonScreen, LessonText
from spec_tui.tui.widgets.step_panels import BLANK
from spec_tui.tui.widgets.strip_panel import title_row

Tell = Callable[[Mapping[str, object]], None]
"""Says something to the server."""
_STEP = 1.5  # seconds between the phases of a round that is shown


@dataclass
class ClassNews(Message):
    """What the server tells every session of a class: page, stage, votes by number, and how many students are here."""

    told: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """A vote on a round.

    Attributes:
        drafted, deepest: tokens of its draft, and of its longest path: so many can be accepted.
        counts: votes by number, from 0 on.
        here: students' sessions.
        mine: the number that this session said; None before.
        came: how many were accepted, the largest number at most; None while the vote goes on.
        votes: whether this session may vote.
    """

    drafted: int
    deepest: int
    counts: tuple[int, ...]
    here: int
    votes: bool
    mine: int | None = None
    came: int | None = None

    def rows(self, width: int) -> list[Row]:
        """The question, and the votes as bars; a student sees them after a vote of their own."""
        most, total = len(self.counts) - 1, sum(self.counts)
        head = title_row(width, "How many will be accepted?", f"{total} of {self.here} voted")
        rows: list[Row] = [head, *rows_of(self._told(most), max(20, width - 1)), BLANK]
        if self.votes and self.mine is None and self.came is None:
            return rows
        room = max(4, width - 16)
        for number, count in enumerate(self.counts):
            right = number == self.came
            mark = "✓" if right else "›" if number == self.mine else " "
            more = "+" if number == most < self.deepest else " "
            rows.append([(f"{mark} {number}{more} ", "good" if right else "strong" if number == self.mine else "text"),
                         (f"{bar(count / max(1, total), room):<{room}}", "good" if right else "bar"),
                         (f" {count}", "text")])
        return rows

    def _told(self, most: int) -> str:
        """What there is to vote on, and what this session may do."""
        path = f", {self.deepest} on its longest path" if self.deepest < self.drafted else ""
        told = f"The draft has {counted(self.drafted, 'token')}{path}."
        if self.came is not None:
            return told + (f" You said {self.mine}." if self.mine is not None else "")
        if not self.votes:
            return f"{told} V shows the round."
        return f"{told} Press {between(0, most)}." if self.mine is None else f"{told} Another digit changes your vote."


class ClassText(LessonText):
    """The page, or the vote on its round in place of its text."""

    ballot: Ballot | None = None

    def draw(self, player: StepPlayer, width: int, height: int) -> list[Row]:
        return self.ballot.rows(width) if self._votes else super().draw(player, width, height)

    def needed(self, player: StepPlayer, width: int) -> int:
        return len(self.ballot.rows(width)) if self._votes else super().needed(player, width)

    @property
    def _votes(self) -> bool:
        return self.ballot is not None and self.shows == "text"


class ClassScreen(LessonScreen, inherit_bindings=False):
    """A lesson that a class goes through.

    Args:
        progress: the lesson and its runs, the same in all sessions.
        leads: whether this is the teacher's session.
        tell: takes what this session says to the server.
    """

    PALETTE = "Class: "
    ACTIONS = (
        Action(id="class.vote", run="vote", keys="V", label="Vote", footer=True,
               when=lambda screen: screen.leads, offered=lambda screen: screen.drafted is not None,
               help="Let the class vote on how many drafted tokens are accepted; again: show the round"),
        Action(id="class.follow", run="follow", keys="F", label="Follow", footer=True,
               when=lambda screen: not screen.leads,
               help="Back to the page that the teacher shows"),
        *(replace(action, digits=range(10)) if action.digits else action for action in LessonScreen.ACTIONS),
    )

    def __init__(self, progress: LessonProgress, leads: bool, tell: Tell) -> None:
        super().__init__(progress)
        self.leads, self.tell = leads, tell
        self.stage, self.led, self.mine = "page", 0, None
        self.counts: tuple[int, ...] = ()
        self.here = 0
        self._joined = not leads  # a teacher who comes back begins at the page of the class, and leads from then on

    def teaching(self) -> ComposeResult:
        yield ClassText(id="lesson")
        yield LessonExplaining(id="explaining")

    def on_mount(self) -> None:
        self.tell({"type": "hello"})

    @property
    def drafted(self) -> Round | None:
        """The round of the page if its draft can be voted on: the page must not show the result yet."""
        view = self.progress.view()
        event = event_of(view.run, view.place.round)
        votes = view.figure is None and not view.options and view.place.phase in BEFORE
        return event if votes and event and event.draft.tokens else None

    @property
    def free(self) -> bool:
        return self.stage != "vote" and super().free

    @property
    def hiding(self) -> bool:
        return super().hiding or self.stage == "vote" or (self.stage == "page" and self.drafted is not None)

    def draw(self) -> None:
        self.query_one(ClassText).ballot = self._ballot()
        super().draw()

    def _ballot(self) -> Ballot | None:
        event = self.drafted
        elsewhere = self.progress.at != self.led or self.player.place.round != self.progress.view().place.round
        if self.stage == "page" or event is None or elsewhere or not self.counts:
            return None
        came = min(len(event.path), len(self.counts) - 1) if self.stage == "shown" else None
        drafted, deepest = len(event.draft.tokens), max(depths(event.draft.parents))
        return Ballot(drafted=drafted, deepest=deepest, counts=self.counts, here=self.here, votes=not self.leads,
                      mine=self.mine, came=came)

    # -- what the server tells --------------------------------------------------------------------
    def on_class_news(self, event: ClassNews) -> None:
        told = event.told
        self.counts, self.here = tuple(told["counts"]), told["here"]
        if self._joined and self.leads:
            self.draw()
        else:
            self._joined = True
            self._goes_to(told["at"], told["stage"])

    def _goes_to(self, at: int, stage: str) -> None:
        """The page and the stage that the class has come to; a student who reads elsewhere is called back to it."""
        moved, was = at != self.led or stage != self.stage, self.stage
        self.led, self.stage = at, stage
        if moved and stage != "shown":
            self.mine = None  # the votes are cleared
        if moved and at < self.progress.length:
            self._staged(at, was)
        self.draw()

    def _staged(self, at: int, was: str) -> None:
        elsewhere = self.progress.at != at
        self.progress.at, self.message = at, ""
        if elsewhere or "page" in (self.stage, was):
            super().turned()
        if self.stage == "vote":
            self._hides_round()
        elif self.stage == "shown":
            phases = phases_of(self.player.run, self.player.place.round)
            for number, phase in enumerate(phases[phases.index("accept") :]):
                self.set_timer(0.01 + number * _STEP, lambda phase=phase: self._shows(at, phase))

    def _shows(self, at: int, phase: str) -> None:
        if self.stage == "shown" and self.progress.at == at:
            self.player.place = StepPosition(self.player.place.round, phase)
            self.draw()

    # -- keys -------------------------------------------------------------------------------------
    def turned(self) -> None:
        super().turned()
        if self.leads:
            self.led, self.stage, self.counts = self.progress.at, "page", ()
            self._lead(0)
        elif self.stage == "vote" and self.progress.at == self.led:
            self._hides_round()
        self.draw()

    def _hides_round(self) -> None:
        self.player.place = StepPosition(self.progress.view().place.round, "tree")

    def _lead(self, most: int) -> None:
        self._joined = True
        self.tell({"type": "page", "at": self.led, "stage": self.stage, "most": most})

    def action_vote(self) -> None:
        """Begin a vote, or end it and show the round."""
        if self.drafted is None:
            self.say("Nothing to vote on: this page asks a question." if self.progress.view().options else
                     "Nothing to vote on: this page shows no draft, or its result already.")
            return
        most, was = min(MOST, max(depths(self.drafted.draft.parents))), self.stage
        self.stage = "shown" if was == "vote" else "vote"
        self.counts = self.counts if self.stage == "shown" else (0,) * (most + 1)
        self._staged(self.progress.at, was)
        self._lead(most)
        self.draw()

    def action_phase(self, step: int) -> None:
        if self.stage == "vote":
            self.say("The class is voting: V shows the round." if self.leads else "The round is shown after the vote.")
        else:
            super().action_phase(step)

    def action_next(self) -> None:
        if self.progress.at + 1 < self.progress.length or self.progress.view().asks:
            super().action_next()
        else:
            self.say("The end.")  # esc ends the session

    def action_follow(self) -> None:
        self._staged(self.led, "page")
        self.draw()

    def action_digit(self, digit: int) -> None:
        if self.stage != "vote" or self.leads or self.progress.at != self.led:
            super().action_digit(digit)
        elif digit < len(self.counts):
            self.mine, self.message = digit, ""
            self.tell({"type": "vote", "said": digit})
            self.draw()
        else:
            most = len(self.counts) - 1
            self.say(f"At most {counted(most, 'token')}: press {between(0, most)}.")
