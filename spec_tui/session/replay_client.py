"""A recorded trace as an engine: its events again, by the engine's own clock or faster or slower. No model, no torch.

What takes place on the clock: the prefill when it was done, each round when it was done; drawing, loading and audits
took no part in it.
"""

from __future__ import annotations

import shlex
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, count

from engines.methods import drafts_nothing, heads_of
from engines.report.events import (
    REPLAY,
    SAMPLING_FIELDS,
    Capabilities,
    Failed,
    Prefilled,
    Prefilling,
    Ready,
    Round,
    RunEvent,
    Started,
)
from engines.report.run_state import RunState, fold_all
from engines.report.traces import Trace
from engines.report.wording import seconds_of
from engines.request import Request
from engines.wire import Event
from spec_tui.present.playback import PlaybackClock
from spec_tui.session.client import ENGINE, PLAYED, EngineClient
from spec_tui.session.engine_commands import Command, Load

Recorded = tuple[RunEvent, ...]
_LIVE = "start the application without a trace"
_NAMED = 2  # problems of the file that a notice has room for


def _duration(event: Event) -> float:
    """Seconds of the engine's clock that an event stands for."""
    return seconds_of(event) if isinstance(event, Round) else event.seconds if isinstance(event, Prefilled) else 0.0


class ReplayClient(EngineClient):
    """A client that can ``capabilities.clock``: the runs of a trace come one after another, unasked. It has no model to
    ask anything of.

    Args:
        trace: what to play.
        speed: how many seconds of a run pass in one; above 0, infinity for all at once.
        time: seconds that pass, for tests.
        title: the trace's name, for people.
        path: as a command names the trace; "" where none can.

    Attributes:
        runs: the events of each run; of those that only measured the rate to compare another one with, ``baselines``
            has the fold.
        clock: the time of all runs, one after another. It moves when ``events`` is called.
    """

    def __init__(
        self, trace: Trace, speed: float = 1.0, time: Callable[[], float] = time.monotonic, title: str = "",
        path: str = "",
    ) -> None:
        self.trace, self.title, self.path = trace, title, path
        self.runs, self.baselines = _apart(trace.runs)
        self._time = time
        self._events: list[Event] = list(chain.from_iterable(self.runs))
        self._times = list(accumulate(map(_duration, self._events)))
        self._bounds = list(accumulate(map(len, self.runs), initial=0))  # of the runs, in the list of events
        self.clock = PlaybackClock(self._times[-1] if self._times else 0.0, speed=speed)
        self._messages: list[tuple[int, Event]] = []
        self._ids = count(1)
        self._alive = True
        self.play()

    # -- the protocol ---------------------------------------------------------------------------
    def submit(self, command: Command) -> int:
        """``Ready`` at once for ``Load``, as far as the trace knows the model, and what of the file could not be read;
        then the runs. All else fails."""
        job = next(self._ids)
        if not isinstance(command, Load):
            self._messages.append((job, Failed("a replay has no model to ask", _LIVE, "usage")))
        elif not self.runs:
            self._messages.append((job, Failed("the trace contains no run", "", "usage")))
        else:
            self._messages.append((job, ready_of(self.runs[0][0])))
            if self.trace.problems:
                self._messages.append((ENGINE, _damage(self.trace.problems, self.path)))
            self.play()
        return job

    def cancel(self, job: int, at_once: bool = False) -> None:
        """What was recorded cannot be stopped."""

    def skip(self) -> None:
        """The rest of the run at once."""
        if self.runs:
            self.clock.position = max(self.clock.position, self._times[self._bounds[self.number + 1] - 1])

    @property
    def capabilities(self) -> Capabilities:
        return REPLAY

    def events(self) -> list[tuple[int, Event]]:
        """The events whose time has come since the last call, of one run at most."""
        now = self._time()
        self.clock.tick(max(0.0, now - self._since))
        self._since = now
        messages, self._messages = self._messages, []
        due = len(self._events) if self.clock.over else bisect_right(self._times, self.clock.position)
        until = min(due, self._bounds[bisect_right(self._bounds, self._given, hi=len(self.runs))])
        begin, self._given = self._given, max(self._given, until)
        return messages + [(PLAYED, event) for event in self._events[begin : self._given]]

    @property
    def alive(self) -> bool:
        return self._alive

    def restart(self) -> None:
        self._alive = True

    def close(self) -> None:
        self._alive = False

    def play(self) -> None:
        """Play all runs from the beginning of the first."""
        self.clock.rewind()
        self._given, self._since = 0, self._time()

    def step(self) -> None:
        """Go to the end of the next round (or of the prefill), though the clock is paused."""
        times = self._times[self._given :]
        self.clock.position = next((time for time in times if time > self.clock.position), self.clock.end)

    @property
    def over(self) -> bool:
        """Whether everything has been given out."""
        return self._given == len(self._events)

    @property
    def reading(self) -> Prefilling | None:
        """How much of the prompt is read at this moment, if it was read evenly; None outside of a prefill."""
        started = self._events[self._given - 1] if 0 < self._given < len(self._events) else None
        if not isinstance(started, Started) or not isinstance(self._events[self._given], Prefilled):
            return None
        begin, end = self._times[self._given - 1 : self._given + 1]
        share = min(1.0, (self.clock.position - begin) / (end - begin)) if end > begin else 1.0
        total = self._events[self._given].prompt_tokens
        return Prefilling(round(share * total), total)

    @property
    def number(self) -> int:
        """The run that plays, from 0."""
        return max(0, bisect_right(self._bounds, self._given - 1, hi=len(self.runs)) - 1)

    @property
    def progress(self) -> tuple[float, float]:
        """Seconds of the run that plays: how many have been played, and how many it took."""
        begin, end = (self._times[bound - 1] if bound else 0.0 for bound in self._bounds[self.number :][:2])
        return min(self.clock.position, end) - begin, end - begin


def _apart(runs: Sequence[Recorded]) -> tuple[tuple[Recorded, ...], tuple[RunState, ...]]:
    """The answers, and the baselines: what was written without drafts after an answer with them, and asked the same."""
    answers, baselines, drafted = [], [], set()
    for run in runs:
        state = fold_all(run)
        plain = drafts_nothing(state.started.engine)
        if plain and state.baseline_key in drafted and state.metrics.tokens_per_second:
            baselines.append(state)
            continue
        answers.append(run)
        if not plain:
            drafted.add(state.baseline_key)
    return tuple(answers), tuple(baselines)


def _damage(problems: tuple[str, ...], path: str) -> Failed:
    """What is wrong with the file, as far as a notice has room."""
    named, more = "; ".join(problems[:_NAMED]), len(problems) - _NAMED
    command = f": spec-tui replay {shlex.quote(path)} --format text names them" if path else ""
    rest = f"; {more} more{command}" if more > 0 else ""
    return Failed(f"part of this trace could not be read: {named}{rest}", "the rest is played", "usage")


def ready_of(started: Started) -> Ready:
    """What a trace knows of the model that wrote it; what it does not know is None."""
    return Ready(
        model=started.model, dtype=started.dtype, device=started.device, parameters=None, vocab_size=None,
        context_limit=None, chat_template=True, draft_model=started.draft_model, price=started.price,
        draft_price=started.draft_price, heads=heads_of(started), capabilities=REPLAY,
    )


def request_of(started: Started) -> Request:
    """What was asked, as the run says it."""
    turns = started.conversation or (("user", ""),)
    return Request(
        conversation=turns, engine=started.engine, options=dict(started.options), law=started.law, seed=started.seed,
        **{name: getattr(started, name) for name in SAMPLING_FIELDS},
        max_new_tokens=started.max_new_tokens, raw=turns[-1][0] == "raw", datastores=started.datastores,
    )
