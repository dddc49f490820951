"""The numbers of a benchmark: a race's, by the benchmark's clock, by task, and against the peers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from engines.bench.clock import TokenTimes, together
from engines.bench.hf_generate import Peer, method_of
from engines.bench.suite import Suite
from engines.race.events import LaneFinished
from engines.race.interval import MedianInterval
from engines.race.lanes import Lane
from engines.race.result import LaneFigures, LaneRun, Result
from engines.report.events import Round, RunEvent


class BenchResults(Result):
    """A benchmark as it comes in. Tokens/s are by ``TokenTimes``: those after the first delivery, over the seconds
    after it.

    Args:
        suite: what is asked, as the race has it.
        pace: the pace of the run that has just ended.

    Attributes:
        paces: by (lane, repeat, prompt).
        crowded, rounds: rounds of ours on fewer threads than were chosen at load (``engines.model.thread_governor``);
            all rounds of ours.
    """

    def __init__(self, suite: Suite, pace: Callable[[], TokenTimes | None]) -> None:
        super().__init__(keep_events=False)
        self.suite, self._pace = suite, pace
        self.paces: dict[tuple[int, int, int], TokenTimes] = {}
        self.crowded = self.rounds = 0
        self._settled: frozenset[int] | None = None  # both are folds over all runs, and asked for again and again
        self._standing: dict[str | None, list[LaneFigures]] = {}

    def add(self, event: RunEvent) -> None:
        """Take the next event."""
        super().add(event)
        self._settled = None
        self._standing.clear()
        if isinstance(event, Round) and self._whose is not None and self._whose.lane in self.own:
            self.rounds += 1
            self.crowded += event.threads is not None
        if isinstance(event, LaneFinished) and not event.failed and (pace := self._pace()) is not None:
            self.paces[event.lane, event.repeat, event.prompt] = pace

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.started.lanes if self.started else ()

    @property
    def own(self) -> list[int]:
        """The lanes that are ours."""
        return [lane for lane, kind in enumerate(self.lanes) if not isinstance(kind, Peer)]

    @property
    def peers(self) -> list[int]:
        """The lanes of generate."""
        return [lane for lane, kind in enumerate(self.lanes) if isinstance(kind, Peer)]

    def peer_of(self, lane: int) -> int | None:
        """The lane of generate with the same method; None where transformers lacks it, or it did not run."""
        method = method_of(self.lanes[lane].engine)
        return next((peer for peer in self.peers if method and self.lanes[peer].engine == method.name), None)

    @property
    def plain_peer(self) -> int | None:
        """Greedy generate, where it runs."""
        return self.peer_of(self.started.baseline) if self.started else None

    @property
    def own_bugs(self) -> bool:
        """Whether an audit found a BUG in a text of ours."""
        return any(run.audited and run.audited.verdict == "BUG" for run in self.runs.values() if run.lane in self.own)

    @property
    def settled(self) -> frozenset[int]:
        """The prompts that count: all of them, and where not even the first repeat is complete, those that every lane
        still in has answered."""
        if self._settled is None:
            out = {run.lane for run in self.runs.values() if run.failed}
            racing = [lane for lane in range(len(self.lanes)) if lane not in out]
            done = [{run.prompt for run in self.of(lane) if run.repeat == 0} for lane in racing]
            self._settled = frozenset(set.intersection(*done) if done else ())
        return self._settled

    def prompts(self, task: str | None = None) -> frozenset[int]:
        """The prompts of a task that count; None: of all tasks."""
        return self.settled if task is None else self.settled.intersection(self.suite.numbers(task))

    @property
    def tasks(self) -> list[str]:
        """Tasks of which something counts."""
        return [task for task in self.suite.tasks if self.prompts(task)]

    def standing(self, task: str | None = None) -> list[LaneFigures]:
        """The figures of all lanes, peers included, in a task or overall."""
        if task not in self._standing:
            self._standing[task] = self.figures(self.prompts(task))
        return self._standing[task]

    def ratio(
        self, lane: int, other: int | None, task: str | None = None, whole: bool = False
    ) -> MedianInterval | None:
        """Tokens/s of one lane over another's in the same repeat; ``whole``: of the whole runs, prefills included.
        None where there is no other lane, or nothing that both did."""
        if other is None:
            return None
        prompts = self.prompts(task)
        mine, theirs = ((self._wholes if whole else self.rates)(each, prompts) for each in (lane, other))
        return MedianInterval.of([rate / theirs[repeat] for repeat, rate in mine.items() if repeat in theirs])

    def length(self, lane: int, task: str | None = None) -> float | None:
        """Tokens a round after the first delivery: M, of generate too."""
        prompts = self.prompts(task)
        counted = [pace for (each, _, prompt), pace in self.paces.items() if each == lane and prompt in prompts]
        return together(counted).length

    def _wholes(self, lane: int, prompts: Collection[int]) -> dict[int, float]:
        """Tokens a second of the whole runs, by complete repeat."""
        return {repeat: together(self.paces[lane, repeat, prompt] for prompt in prompts).whole
                for repeat in self.rates(lane, prompts)}

    def _rate(self, runs: Sequence[LaneRun]) -> float | None:
        return together(self.paces[run.lane, run.repeat, run.prompt] for run in runs).rate

    def _ttft(self, run: LaneRun) -> float | None:
        return self.paces[run.lane, run.repeat, run.prompt].first_seconds
