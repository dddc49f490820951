"""The numbers of a benchmark: a race's, by the benchmark's clock, by task, and against generate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from engines import methods
from engines.bench.hf_generate import GenerateLane
from engines.bench.suite import Suite
from engines.race.interval import MedianInterval, ratio_of
from engines.race.lanes import Lane
from engines.race.race_events import LaneFinished
from engines.race.result import LaneFigures, LaneRun, RaceResult
from engines.race.token_times import TokenTimes
from engines.report.events import Round, RunEvent
from engines.report.metrics import together


class BenchResults(RaceResult):
    """A benchmark as it comes in. Tokens/s are by ``TokenTimes``: those after the first delivery, over the seconds
    after it.

    Args:
        suite: what is asked, as the race has it.
        last_times: gives the times of the run that has just ended.

    Attributes:
        token_times: by (lane, repeat, prompt).
        rounds, on_fewer_threads: all rounds of ours; those on fewer threads than were chosen at load
            (``engines.model.tuning``).
    """

    def __init__(self, suite: Suite, last_times: Callable[[], TokenTimes | None]) -> None:
        super().__init__(keep_runs=False)
        self.suite, self._last_times = suite, last_times
        self.token_times: dict[tuple[int, int, int], TokenTimes] = {}
        self.rounds = self.on_fewer_threads = 0
        self._counted: frozenset[int] | None = None  # both are folds over all runs, and asked for again and again
        self._by_task: dict[str | None, list[LaneFigures]] = {}

    def add(self, event: RunEvent) -> None:
        super().add(event)
        self._counted = None
        self._by_task.clear()
        if isinstance(event, Round) and self._current is not None and self._current.lane in self.own:
            self.rounds += 1
            self.on_fewer_threads += event.threads is not None
        if isinstance(event, LaneFinished) and not event.failed and (times := self._last_times()) is not None:
            self.token_times[event.lane, event.repeat, event.prompt] = times

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.started.lanes if self.started else ()

    @property
    def own(self) -> list[int]:
        """The lanes that are ours."""
        return [lane for lane, kind in enumerate(self.lanes)
                if not isinstance(kind, GenerateLane) and not methods.find(kind.engine).host]

    @property
    def raced(self) -> list[int]:
        """The lanes that are compared: ours, and those of other programs."""
        return [lane for lane, kind in enumerate(self.lanes) if not isinstance(kind, GenerateLane)]

    @property
    def generate_lanes(self) -> list[int]:
        """The lanes of generate."""
        return [lane for lane, kind in enumerate(self.lanes) if isinstance(kind, GenerateLane)]

    def counterpart(self, lane: int) -> int | None:
        """The lane of generate with the same method; None where transformers lacks it, or it did not run."""
        call = methods.find(self.lanes[lane].engine).generate
        return next((n for n in self.generate_lanes if call is not None and self.lanes[n].engine == call.name), None)

    @property
    def plain_generate(self) -> int | None:
        """The lane of greedy generate; None where it does not run."""
        return self.counterpart(self.started.baseline) if self.started else None

    @property
    def own_bugs(self) -> bool:
        """Whether an audit found a BUG in a text of ours."""
        return any(run.found_bug for run in self.runs.values() if run.lane in self.own)

    @property
    def counted(self) -> frozenset[int]:
        """The prompts that count: all of them, and where not even the first repeat is complete, those that every lane
        still in has answered."""
        if self._counted is None:
            out = {run.lane for run in self.runs.values() if run.failed}
            racing = [lane for lane in range(len(self.lanes)) if lane not in out]
            done = [{run.prompt for run in self.of(lane) if run.repeat == 0} for lane in racing]
            self._counted = frozenset(set.intersection(*done) if done else ())
        return self._counted

    def prompts(self, task: str | None = None) -> frozenset[int]:
        """The prompts of a task that count; None: of all tasks."""
        return self.counted if task is None else self.counted.intersection(self.suite.numbers(task))

    @property
    def tasks(self) -> list[str]:
        """Tasks of which something counts."""
        return [task for task in self.suite.tasks if self.prompts(task)]

    def by_task(self, task: str | None = None) -> list[LaneFigures]:
        """The figures of all lanes, generate's included, in a task or overall."""
        if task not in self._by_task:
            self._by_task[task] = self.figures(self.prompts(task))
        return self._by_task[task]

    def ratio(
        self, lane: int, other: int | None, task: str | None = None, whole: bool = False
    ) -> MedianInterval | None:
        """Tokens/s of one lane over another's in the same repeat; ``whole``: of the whole runs, prefills included.
        None where there is no other lane, or nothing that both did."""
        if other is None:
            return None
        prompts = self.prompts(task)
        mine, theirs = ((self._wholes if whole else self.rates)(each, prompts) for each in (lane, other))
        return ratio_of(mine, theirs)

    def length(self, lane: int, task: str | None = None) -> float | None:
        """Tokens a round after the first delivery: M, of generate too."""
        prompts = self.prompts(task)
        runs = (run for (each, _, prompt), run in self.token_times.items() if each == lane and prompt in prompts)
        return TokenTimes.total(runs).length

    def _wholes(self, lane: int, prompts: Collection[int]) -> dict[int, float]:
        """Tokens a second of the whole runs, by complete repeat."""
        return {repeat: TokenTimes.total(self.token_times[lane, repeat, prompt] for prompt in prompts).whole
                for repeat in self.rates(lane, prompts)}

    def _rate(self, runs: Sequence[LaneRun]) -> float | None:
        if together(run.state.metrics for run in runs).at_once:
            return None
        return TokenTimes.total(self.token_times[run.lane, run.repeat, run.prompt] for run in runs).rate

    def _ttft(self, run: LaneRun) -> float | None:
        return self.token_times[run.lane, run.repeat, run.prompt].first_seconds
