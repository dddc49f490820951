"""The adviser at work: rounds of successive halving, each a fair race on some of the prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter

from engines import methods
from engines.advice import halving
from engines.advice.advice_events import AdviceEvent, ScreeningFinished, ScreeningStarted
from engines.advice.findings import BASELINE, Findings, Screening
from engines.advice.halving import Stage
from engines.bench.suite import Suite
from engines.race.lanes import Lane, Race
from engines.race.race_events import LaneFinished, RaceEvent
from engines.race.result import RaceResult
from engines.race.runner import Racer, race
from engines.report.events import Preparing, RunEvent
from engines.request import Request

REPEATS = 6  # of the final at most: so many that the machine's noise is known too


class Adviser(Findings):
    """Looks for the best setting within a time.

    Args:
        racer: who runs.
        lanes: the settings, without the baseline.
        suite, request, seconds: as of ``Findings``.
        pace: of the baseline as far as it is known, to divide the first round by.
        plan: the rounds, and the methods (``Lane.method``) that take part, of ``halving.plan``; None: all of both,
            however short the time is.
        known: whether an answer lies in a datastore: then its prompt is held out.
        clock: seconds.
        temperature: another one, at which the settings of the final are tried too if time is left; None for none.
    """

    def __init__(
        self, racer: Racer, lanes: tuple[Lane, ...], suite: Suite, request: Request, seconds: float, *,
        pace: halving.AnswerPace | None = None, plan: halving.Plan | None = None,
        known: Callable[[Sequence[int]], bool] = lambda tokens: False,
        clock: Callable[[], float] = perf_counter, temperature: float | None = None,
    ) -> None:
        super().__init__(suite=suite, request=request, seconds=seconds)
        self.racer, self.clock = racer, clock
        self.rate, self.overhead = (pace.rate, pace.overhead) if pace is not None else (None, 0.0)
        self.temperature = temperature
        groups = [lane.method for lane in lanes]
        plan = plan or halving.Plan(tuple(halving.stages(groups)), tuple(dict.fromkeys(groups)))
        self.stages = [*plan.stages, *[Stage.TEMPERATURE] * (temperature is not None)]
        self.lanes = tuple(sorted((lane for lane in lanes if lane.method in plan.methods),
                                  key=lambda lane: plan.methods.index(lane.method)))
        self.known = known
        self._cases = halving.spread(suite)

    def run(
        self, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Preparing], None] = lambda event: None,
    ) -> Iterator[RunEvent | RaceEvent | AdviceEvent]:
        """The rounds as events. ``cancelled`` ends it with what there is, and so does the time.

        Raises:
            UsageProblem: before anything, for settings that cannot be run.
            SpecError: every lane fails in its warm-up.
        """
        end = self.clock() + self.seconds
        watch = Stopwatch(self.clock, end)
        selecting = [stage for stage in self.stages if stage is not Stage.TEMPERATURE]
        for number, stage in enumerate(self.stages):
            check = stage is Stage.TEMPERATURE
            left, field = end - self.clock(), self._field(stage)
            if self.rounds and (left <= (watch.each if check else 0) or cancelled() or not field):
                return
            seconds = left if check else halving.round_seconds(left, number, len(selecting))
            screening = self._round(field, seconds, stage)
            self.rounds.append(screening)
            yield ScreeningStarted(number=number + 1, rounds=len(self.stages), seconds=seconds, asked=screening.asked,
                                   suite=screening.suite, final=screening.final)
            watch = Stopwatch(self.clock, self.clock() + seconds)
            for event in race(self.racer, screening.asked, cancelled, progress, watch.enough):
                screening.result.add(event)
                watch.see(event)
                yield event
            self._hold_out(screening)
            yield ScreeningFinished(tuple(sorted(screening.held_out)), tuple(self.held_out), self.copied)
            self._pace(screening)

    def _field(self, stage: Stage) -> tuple[Lane, ...]:
        """The settings of the next round."""
        if stage is Stage.METHODS or (stage is Stage.FINAL and not self.rounds and len(self.lanes) > halving.FINALISTS):
            first = {lane.method: lane for lane in reversed(self.lanes)}
            return tuple(lane for lane in self.lanes if first[lane.method] is lane)
        if not self.rounds:
            return self.lanes
        last = self.rounds[-1]
        if stage in (Stage.FINAL, Stage.TEMPERATURE):
            return best(last, halving.FINALISTS)
        going_on = {lane.method for lane in best(last, halving.kept(len(last.lanes) - 1))}
        return tuple(lane for lane in self.lanes if lane.method in going_on)

    def _pace(self, screening: Screening) -> None:
        """Note how fast the baseline was, and how long an answer takes before its rounds, to plan the next round."""
        metrics = screening.metrics(BASELINE)
        self.rate = metrics.tokens_per_second or self.rate
        if metrics.answers:
            self.overhead = metrics.prefill_seconds / metrics.answers

    def _hold_out(self, screening: Screening) -> None:
        """Put the questions that were asked after the others, and drop those that a datastore answers, as long as half
        of all are left."""
        places = screening.suite.places
        runs = [(places[run.prompt][0], run.state.finished.tokens) for run in screening.result.of(BASELINE)]
        asked, found = {case for case, _ in runs}, {case for case, tokens in runs if self.known(tokens)}
        rest = [case for case in self._cases if case not in found]
        self.copied = len(found)
        if asked != found and 2 * len(rest) >= len(self.suite.cases):
            self.copied = 0
            screening.held_out = frozenset(number for number, (case, _) in enumerate(places) if case in found)
            self.held_out += [case for case in self._cases if case in found]
            self._cases = tuple(rest)
        self._cases = tuple(sorted(self._cases, key=lambda case: case in asked))

    def _round(self, field: tuple[Lane, ...], seconds: float, stage: Stage) -> Screening:
        """A round's race. Screening goes on with prompts that were not asked yet; the final begins with the first."""
        final, request = stage is Stage.FINAL, self.request
        if stage is Stage.TEMPERATURE:
            request = replace(request, temperature=self.temperature)
        lanes = (Lane(methods.baseline().id), *field)
        cases = [case for case in halving.spread(self.suite) if case in self._cases] if final else self._cases
        suite = replace(self.suite, cases=tuple(cases))
        warm = 0 if self.rounds else halving.WARM  # then all methods have just run
        length = halving.answer_length(
            seconds, self.rate, self.overhead, len(lanes), len(suite.places), request.max_new_tokens)
        asked = Race(lanes, replace(request, max_new_tokens=length), suite.prompts, REPEATS if final else 1,
                     warm_up=warm)
        return Screening(asked, suite, final, RaceResult(keep_runs=False))


def best(screening: Screening, keep: int) -> tuple[Lane, ...]:
    """The lanes of a round that go on to the next one."""
    scores = [None if lane in screening.failed else screening.score(lane) for lane in range(1, len(screening.lanes))]
    groups = [lane.method for lane in screening.lanes[1:]]
    return tuple(screening.lanes[1 + place] for place in halving.survivors(scores, groups, keep))


class Stopwatch:
    """Says when a round has no time for another prompt, which takes as long as those before did on average: so a round
    ends in time. ``each`` is how long one took."""

    def __init__(self, clock: Callable[[], float], end: float) -> None:
        self._clock, self._end, self.each = clock, end, 0.0
        self._began: float | None = None
        self._prompts: set[tuple[int, int]] = set()

    def see(self, event: RunEvent | RaceEvent) -> None:
        if isinstance(event, LaneFinished) and event.failed is None:
            self._prompts.add((event.repeat, event.prompt))

    def enough(self) -> bool:
        """Whether no more prompts should be asked; the first call, before the first prompt, begins the count."""
        now = self._clock()
        if self._began is None:
            self._began = now
            return False
        self.each = (now - self._began) / max(1, len(self._prompts))
        return now + self.each > self._end
