"""A race, run: fair by construction.

Lanes run one after another on the same models. Each is warmed up by a short run that counts nowhere. Before every run
the KV caches are emptied and what budgets learned is forgotten, so that each pays its own prefill and begins as
``spec-tui run`` does in a fresh process. The order changes from turn to turn (``lanes.order``). A run's events are kept
until it is over.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, Protocol

from engines.errors import SpecError
from engines.race.lanes import Race, order
from engines.race.output_compare import Key, compare
from engines.race.race_events import (
    Compared,
    LaneEvents,
    LaneFinished,
    LaneStarted,
    RaceEvent,
    RaceFinished,
    RaceStarted,
)
from engines.race.system_load import LoadWatch
from engines.report.answer import Answer
from engines.report.events import (
    Audited,
    Auditing,
    Failed,
    Finished,
    Prefilled,
    Prefilling,
    Preparing,
    Round,
    RunEvent,
    Started,
)
from engines.report.metrics import measure
from engines.request import Request

WARM_UP = 32  # tokens: libraries, memory and the processor are awake after some


class Racer(Protocol):
    """What a race needs of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    def run(
        self, request: Request, cancelled: Callable[[], bool] = ..., progress: Callable[[Preparing], None] = ...
    ) -> Iterator[RunEvent | RaceEvent]: ...

    def audit(
        self, answer: Answer, cancelled: Callable[[], bool] = ..., progress: Callable[[float], None] = ...
    ) -> Audited | None: ...

    def forget(self) -> None: ...

    def forget_acceptance(self) -> None: ...

    def memory(self, engine: str, options: Mapping[str, Any], rows: int, draft_model: str = ...) -> int | None: ...


def race(
    racer: Racer, asked: Race, cancelled: Callable[[], bool] = lambda: False,
    progress: Callable[[Preparing], None] = lambda event: None, enough: Callable[[], bool] = lambda: False,
) -> Iterator[RunEvent | RaceEvent]:
    """The race as events (``engines.race.race_events``); ``cancelled`` is asked between rounds, ``progress`` is told of
    what runs that are not timed wait for. What is cut off is left out, and a race without audits ends where it was
    cancelled. ``enough`` is asked before each prompt of each repeat: once it says so no other is asked, and the race
    ends as one that is done.

    Raises:
        UsageProblem: before anything, for a race that cannot be run.
        SpecError: every lane fails in its warm-up; that of the first, with its label.
    """
    asked.check()
    yield from _Runner(racer, asked, cancelled, progress).events(enough)


def defer_events(events: Iterable[RunEvent | RaceEvent]) -> Iterator[RunEvent | RaceEvent]:
    """The same race, or races one after another, with the events of all runs after a race's last run: for a reader in
    another process, whose work on them would take time from the lanes that follow. A live race is passed on as it is.
    """
    kept: list[RunEvent | RaceEvent] = []
    of_run = over = False
    try:
        for event in events:
            if isinstance(event, RaceStarted):
                over = event.live
            over = over or isinstance(event, (Auditing, Compared, RaceFinished))
            if over:
                yield from kept
                kept.clear()
            of_run = isinstance(event, LaneEvents) or (of_run and not isinstance(event, RaceEvent))
            if of_run and not over:
                kept.append(event)
            else:
                yield event
    except Exception:
        yield from kept
        raise


class _Runner:
    """The state of a race."""

    def __init__(
        self, racer: Racer, asked: Race, cancelled: Callable[[], bool], progress: Callable[[Preparing], None]
    ) -> None:
        self.racer, self.asked, self.cancelled, self.progress = racer, asked, cancelled, progress
        self.turns = [(q, t) for q, turns in enumerate(asked.prompts) for t in range(len(turns))] or [(0, -1)]
        self.answers: dict[Key, Answer] = {}  # of complete runs
        self.texts: dict[int, dict[int, str]] = {}  # by prompt and lane, of the first repeat
        self.out: set[int] = set()  # lanes that failed
        self.step = 0
        self.warm = WARM_UP if asked.warm_up is None else asked.warm_up
        self.steps = len(asked.lanes) * bool(self.warm) + asked.runs

    def events(self, enough: Callable[[], bool]) -> Iterator[RunEvent | RaceEvent]:
        asked = self.asked
        yield RaceStarted(asked.lanes, len(self.turns), asked.repeats, asked.baseline, asked.live)
        if self.warm:
            yield from self._warm_up()
        for repeat, prompt in product(range(asked.repeats), range(len(self.turns))):
            if enough():
                break
            for lane in order(len(asked.lanes), repeat * len(self.turns) + prompt, asked.request.seed):
                if lane not in self.out and not self.cancelled():
                    yield from self._run(lane, repeat, prompt)
        yield from compare(
            self.answers, lambda answer: None if self.cancelled() else self.racer.audit(answer, self.cancelled),
            asked.audit,
        )
        yield RaceFinished("cancelled" if self.cancelled() else "done")

    def _warm_up(self) -> Iterator[RunEvent | RaceEvent]:
        """Run each lane shortly. One that fails is out, and says so; where all do, the first error is raised."""
        errors: dict[int, SpecError] = {}
        for lane in order(len(self.asked.lanes), 0, self.asked.request.seed):
            if self.cancelled():
                return
            request = self._request(lane, 0)
            request = replace(request, max_new_tokens=min(self.warm, request.max_new_tokens))
            yield self._next(lane, 0, 0, warm_up=True)
            watch = LoadWatch()
            try:
                self._run_untimed(request)
            except SpecError as error:
                errors[lane] = error
                self.steps -= self.asked.repeats * len(self.turns)
                failed = Failed(error.message, error.hint, error.kind)
                yield self._finished(LaneEvents(lane, 0, 0), [], failed, *watch.stop())
        if len(errors) == len(self.asked.lanes):
            lane, error = min(errors.items())
            raise type(error)(f"{self.asked.labels[lane]}: {error.message}", error.hint) from error

    def _run_untimed(self, request: Request) -> None:
        """Run it, and say what it waits for, also when it waits no more: no other event comes of it."""
        told: list[Preparing] = []

        def tell(step: Preparing) -> None:
            told.append(step)
            self.progress(step)

        tokens = 0
        for event in self.racer.run(request, self.cancelled, tell):
            if isinstance(event, Started):
                tokens = len(event.prompt)
            elif isinstance(event, Prefilled) and told:
                self.progress(Prefilling(tokens, tokens))

    def _run(self, lane: int, repeat: int, prompt: int) -> Iterator[RunEvent | RaceEvent]:
        whose, request = LaneEvents(lane, repeat, prompt), self._request(lane, prompt)
        yield self._next(lane, repeat, prompt)
        gc.collect()  # so that the garbage of earlier lanes is not collected on this one's time
        if self.asked.live:
            yield whose
        events: list[RunEvent | RaceEvent] = []
        failed = None
        told = {"progress": self.progress} if self.asked.live else {}
        watch = LoadWatch()
        try:
            for event in self.racer.run(request, self.cancelled, **told):
                events.append(event)
                if self.asked.live:
                    yield event
        except SpecError as error:
            failed = Failed(error.message, error.hint, error.kind)
        finished = self._finished(whose, events, failed, *watch.stop())
        if finished is None:
            return
        yield finished
        if not self.asked.live:
            yield whose
            yield from events

    def _next(self, lane: int, repeat: int, prompt: int, warm_up: bool = False) -> LaneStarted:
        """Begin a run as a fresh process would, with empty caches and nothing learned."""
        self.racer.forget()
        self.racer.forget_acceptance()
        self.step += 1
        return LaneStarted(lane=lane, repeat=repeat, prompt=prompt, step=self.step, steps=self.steps, warm_up=warm_up)

    def _request(self, lane: int, prompt: int) -> Request:
        """What this lane is asked: the conversation up to this turn."""
        base, (question, turn) = self.asked.request, self.turns[prompt]
        conversation = base.conversation
        if turn >= 0:
            turns = self.asked.prompts[question]
            for earlier in range(turn):
                answers = self.texts[prompt - turn + earlier]
                answer = answers[min(answers)]  # of the first lane that gave one
                conversation += (("user", turns[earlier]), ("assistant", answer))
            conversation += (("user", turns[turn]),)
        return self.asked.lanes[lane].of(replace(base, conversation=conversation))

    def _finished(
        self, whose: LaneEvents, events: list[RunEvent], failed: Failed | None, seconds: float, others: float | None,
        waited: float | None,
    ) -> LaneFinished | None:
        """Note the run, and say what was measured; None for one that was cut off."""
        lane, repeat, prompt = whose.lane, whose.repeat, whose.prompt
        last = events[-1] if events else None
        if failed is not None:
            self.out.add(lane)
        elif not isinstance(last, Finished) or last.reason == "cancelled":
            return None
        else:
            self.answers[lane, repeat, prompt] = Answer.from_events(events)
            if repeat == 0:
                self.texts.setdefault(prompt, {})[lane] = last.text
        metrics = measure(events)
        rows = max(((e.cache_length or 0) + len(e.draft.tokens) for e in events if isinstance(e, Round)), default=0)
        ran = self.asked.lanes[lane]
        # where the lane failed, its draft model may be what cannot be loaded
        memory = None if failed else self.racer.memory(ran.engine, ran.options, rows, ran.draft_model)
        return LaneFinished(
            lane=lane, repeat=repeat, prompt=prompt, tokens=metrics.new_tokens,
            tokens_per_second=metrics.tokens_per_second, seconds=seconds, memory=memory, other_seconds=others,
            waited_seconds=waited, failed=failed,
        )
