"""What an adviser at work in the engine process finds, as a screen sees it: a fold of its events."""

from __future__ import annotations

from statistics import median
from time import perf_counter

from engines.advice.advice_events import AdviceFinished, AdviceStarted, ScreeningFinished, ScreeningStarted
from engines.advice.findings import Findings, Screening
from engines.bench.suite import Suite
from engines.race.race_events import LaneFinished, LaneStarted
from engines.race.result import RaceResult
from engines.report.events import Auditing, Failed, Loading, Prefilling
from engines.request import Request
from engines.wire import Event


class AdviceState(Findings):
    """What is known so far.

    Attributes:
        left_out, notes: as of ``AdviceStarted``.
        at: the run under way; ``auditing``: texts that differ are checked.
        rates: of the round under way, tokens a second of each lane's answers so far.
        problem: why it went no further, None where it did.
    """

    def __init__(self, suite: Suite, request: Request, seconds: float) -> None:
        super().__init__(suite=suite, request=request, seconds=seconds)
        self.left_out: dict[str, str] = {}
        self.notes: tuple[str, ...] = ()
        self.over = self.auditing = False
        self.at: LaneStarted | None = None
        self.rates: dict[int, list[float]] = {}
        self.problem: Failed | None = None
        self.began = perf_counter()

    @property
    def running(self) -> bool:
        return not self.over and self.problem is None

    @property
    def timing(self) -> bool:
        """Lanes are measured: whatever is drawn now may cost one of them time."""
        return self.running and self.at is not None and not self.auditing

    @property
    def done(self) -> float:
        """The share of the time that has passed."""
        return min(1.0, (perf_counter() - self.began) / self.seconds)

    def so_far(self) -> list[tuple[str, int, float | None]]:
        """Of the round under way: each setting, how many answers it gave, and the median of their tokens a second; the
        fastest first."""
        if not self.rounds:
            return []
        labels = self.rounds[-1].asked.labels
        found = [(label, len(self.rates.get(lane, ())), median(self.rates[lane]) if self.rates.get(lane) else None)
                 for lane, label in enumerate(labels)]
        return sorted(found, key=lambda row: -(row[2] or 0.0))

    def add(self, event: Event) -> None:
        self.auditing = isinstance(event, Auditing)
        if isinstance(event, AdviceStarted):
            self.suite, self.stages, self.left_out = event.suite, range(event.rounds), event.left_out
            self.notes = event.notes
        elif isinstance(event, ScreeningStarted):
            self.rounds.append(Screening(event.asked, event.suite, event.final, RaceResult(keep_runs=False)))
            self.rates = {}
        elif isinstance(event, ScreeningFinished):
            self.rounds[-1].held_out = frozenset(event.held_out)
            self.held_out, self.copied, self.at = list(event.questions), event.copied, None
        elif isinstance(event, AdviceFinished):
            self.over, self.at = True, None
        elif isinstance(event, Failed):
            self.problem = event
        elif self.rounds and not isinstance(event, Auditing | Prefilling | Loading):
            self._add_to_race(event)

    def _add_to_race(self, event: Event) -> None:
        self.rounds[-1].result.add(event)
        if isinstance(event, LaneStarted):
            self.at = event
        elif isinstance(event, LaneFinished) and event.tokens_per_second:
            self.rates.setdefault(event.lane, []).append(event.tokens_per_second)
