"""A race on a screen, without the screen: what is chosen, what runs, which moment of it is shown.

While a race runs the engine belongs to it: its events are taken here, and the conversation's ``ChatSession`` hears of
nothing until it is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engines.errors import SpecError
from engines.race.events import Compared
from engines.race.result import LaneRun
from engines.report.events import Failed
from engines.report.run_state import RunState
from spec_tui.session.race_replay import RaceReplay, points
from spec_tui.session.race_state import RaceState
from spec_tui.tui.chat_session import ChatSession, Happening
from spec_tui.tui.race_setup import RaceSetup, usual
from spec_tui.tui.showcase import SHOWCASES

GONE = Failed("the engine process ended", "esc goes back to the chat, ctrl+r there restarts it", "crashed")


@dataclass(frozen=True, slots=True)
class Moment:
    """A lane's run at the moment that is shown.

    Attributes:
        whole, now: its run to the end (as far as it is known), and as it was then.
        seconds: of its clock.
        place: as which it came in, None before.
    """

    whole: RunState
    now: RunState
    seconds: float
    place: int | None = None


class RaceController:
    """Races one after another over a sitting's engine.

    Attributes:
        setup: the race to be.
        bout: the race that runs or ran last, None before one.
        photo: its runs on one clock, None while it runs.
        differing: the pair whose first differing token is shown, else None.
        heard, happened: what the sitting heard at the last look, and since the beginning, for the chat below.
    """

    def __init__(self, sitting: ChatSession) -> None:
        self.sitting = sitting
        code = next(item.prompt for item in SHOWCASES if item.kind == "code")
        prompt = sitting.last.prompt if sitting.last is not None else code
        self._usual = usual(sitting.settings, sitting.ready)
        self.setup = RaceSetup(self._usual, prompt)
        self.bout: RaceState | None = None
        self.photo: RaceReplay | None = None
        self.differing: Compared | None = None
        self.happened: set[Happening] = set()
        self.heard: set[Happening] = set()

    @property
    def running(self) -> bool:
        return self.bout is not None and self.bout.running

    @property
    def finished(self) -> bool:
        """There is a result to look at."""
        return self.bout is not None and not self.bout.running and bool(self.bout.result.complete)

    # -- what a person does -----------------------------------------------------------------------
    def start(self) -> str:
        """Race. Returns "" or why not, in words."""
        sitting = self.sitting
        if self.running:
            return "The race is still running: esc stops it."
        if sitting.busy:
            return sitting.still
        if sitting.phase != "ready":
            loading = sitting.phase == "loading"
            return "The model is still loading." if loading else "No engine: esc goes back, ctrl+r there tries again."
        try:
            asked = self.setup.race(sitting.settings, sitting.ready)
        except SpecError as error:
            return f"{error.message}: {error.hint}"
        self.bout, self.photo, self.differing = RaceState(asked), None, None
        sitting.client.race(asked)
        return ""

    def change(self, setup: RaceSetup) -> None:
        """Another race to be; the result of one with other lanes goes."""
        if self.bout is not None and not self.running and setup.lanes != self.setup.lanes:
            self.bout = self.photo = self.differing = None
        self.setup = setup

    def cancel(self) -> None:
        """Stop after the round under way; what is complete stays."""
        if self.running:
            self.bout.stopping = True
            self.sitting.client.cancel()

    def next_difference(self) -> Compared | None:
        """Show the next pair that differs, at the first token that does; after the last none."""
        pairs = [pair for pair in self.bout.result.pairs if pair.at is not None] if self.finished else []
        at = pairs.index(self.differing) + 1 if self.differing in pairs else 0
        self.differing = pairs[at] if at < len(pairs) else None
        self._develop()
        if self.photo is not None:
            self.photo.skip()
        return self.differing

    # -- what the engine says ---------------------------------------------------------------------
    def pump(self) -> bool:
        """Take what has arrived; whether anything has."""
        self.heard = set()
        if not self.running:
            self.heard = heard = self.sitting.pump()
            if "ready" in heard and self.setup.lanes == self._usual:  # now it is known what is at hand
                self._usual = usual(self.sitting.settings, self.sitting.ready)
                self.setup = replace(self.setup, lanes=self._usual)
            self.happened |= heard
            return bool(heard)
        client = self.sitting.client
        arrived = client.events()
        for event in arrived:
            self.bout.add(event)
        if not client.alive and (self.running or self.bout.problem in arrived):
            problem = self.bout.problem  # the client says how it ended, but not the way out from here
            self.bout.lost(replace(problem, hint=f"{problem.hint}: {GONE.hint}") if problem else GONE)
        if not self.running:
            self._develop()
            if self.bout.asked.live and self.photo is not None:
                self.photo.skip()  # it was seen already
        return bool(arrived) or not self.running

    def _develop(self) -> None:
        """Put the runs that are shown on one clock."""
        runs = {lane: self.run(lane) for lane in range(len(self.bout.labels))} if self.bout else {}
        runs = {lane: self.bout.state(run) for lane, run in runs.items() if run is not None}
        self.photo = RaceReplay(runs) if runs else None

    # -- what is shown ----------------------------------------------------------------------------
    def run(self, lane: int) -> LaneRun | None:
        """The run that stands for a lane: in a difference the one that differs."""
        pair = self.differing
        if pair is not None and lane in (pair.first, pair.second):
            return self.bout.run(lane, pair.second_repeat if lane == pair.second else pair.first_repeat)
        return self.bout.shown(lane)

    def moment(self, lane: int) -> Moment | None:
        """A lane as it is shown now; None where there is nothing of it."""
        if self.photo is not None:
            if lane not in self.photo.runs:
                return None
            found = self.photo.points(lane)
            seconds = self.photo.now if not self.photo.arrived(lane) else found[-1][0] if found else 0.0
            return Moment(self.photo.runs[lane], self.photo.at(lane), seconds, self.photo.place(lane))
        if self.bout is None or not self.bout.asked.live or (run := self.bout.shown(lane)) is None:
            return None
        state = self.bout.state(run)
        found = points(state)
        return Moment(state, state, found[-1][0] if found else 0.0)

    def series(self) -> list[tuple[str, list[tuple[float, int]]]]:
        """A mark and the points of each lane up to this moment."""
        lanes = range(len(self.bout.labels)) if self.bout is not None else ()
        if self.photo is not None:
            return [(str(n + 1), self.photo.points(n) if n in self.photo.runs else []) for n in lanes]
        moments = [self.moment(n) for n in lanes]
        return [(str(n + 1), points(m.whole) if m is not None else []) for n, m in enumerate(moments)]
