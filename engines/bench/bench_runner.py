"""Who runs: our engines on the runtime, ``generate`` on models of its own, each timed by the same clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from engines.bench.clock import TokenTimes
from engines.bench.hf_generate import Peer
from engines.bench.suite import Case, Suite
from engines.errors import SpecError, UsageProblem
from engines.race.lanes import Lane
from engines.race.runner import Racer
from engines.report.answer import Answer
from engines.report.events import Audited, Finished, Prefilled, Ready, Round, RunEvent
from engines.request import Request


class BenchDecoder(Racer, Protocol):
    """What a benchmark needs of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    ready: Ready

    def prompt_length(self, request: Request) -> int: ...


class Others(Protocol):
    """Who runs the peers: ``engines.bench.generate_runs.Generator``, or a stand-in of the tests."""

    pace: TokenTimes | None

    def run(self, request: Request, peer: Peer, cancelled: Callable[[], bool]) -> Iterator[RunEvent]: ...

    def memory(self, peer: Peer, rows: int) -> int: ...


@dataclass(slots=True)
class BenchRunner:
    """A racer that hands each run to whom it belongs.

    Attributes:
        decoder, others: those who run.
        pace: of the last run that ended.
    """

    decoder: BenchDecoder
    others: Others | None = None
    pace: TokenTimes | None = None

    def run(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> Iterator[RunEvent]:
        """A run of the engine, or the peer, that the request names. Raises as that does."""
        peer = Peer(request.engine)
        if self.others is not None and peer.known:
            yield from self.others.run(request, peer, cancelled)
            self.pace = self.others.pace
            return
        rounds, begun = 0, perf_counter()
        clock = begun
        for event in self.decoder.run(request, cancelled):
            if isinstance(event, Prefilled):
                clock = perf_counter()
            elif isinstance(event, Finished):
                self.pace = TokenTimes(1, clock - begun, len(event.tokens) - 1, perf_counter() - clock, rounds)
            rounds += isinstance(event, Round)
            yield event

    def audit(
        self, answer: Answer, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[float], None] = lambda done: None,
    ) -> Audited | None:
        """Any lane's answer against our target, read plainly."""
        return self.decoder.audit(answer, cancelled, progress)

    def forget(self) -> None:
        self.decoder.forget()

    def forget_acceptance(self) -> None:
        self.decoder.forget_acceptance()

    def memory(self, engine: str, rows: int) -> int:
        """As who runs it says."""
        peer = Peer(engine)
        if self.others is not None and peer.known:
            return self.others.memory(peer, rows)
        return self.decoder.memory(engine, rows)


def able(contest: BenchRunner, lanes: tuple[Lane, ...], request: Request) -> tuple[tuple[Lane, ...], list[str]]:
    """The lanes that can answer a request here, tried with two tokens; a sentence for each of the others."""
    fit, said = [], []
    for lane in lanes:
        try:
            for _ in contest.run(lane.of(replace(request, max_new_tokens=2))):
                pass
            fit.append(lane)
        except SpecError as error:
            hint = f" ({error.hint})" if error.hint else ""
            said.append(f"{lane.label} is left out: {error.message}{hint}")
    contest.forget()
    return tuple(fit), said


def fitting(contest: BenchRunner, suite: Suite, request: Request) -> tuple[Suite, list[str]]:
    """The cases whose turns fit into the model's context, each with an answer of full length between them; a sentence
    about the others. Raises UsageProblem where none does."""
    limit = contest.decoder.ready.context_limit

    def fits(case: Case) -> bool:
        turns = [("user", turn) for turn in case.turns]
        lengths = [contest.decoder.prompt_length(replace(request, conversation=(*request.conversation, turn)))
                   for turn in turns]
        return sum(lengths) + (len(turns) - 1) * request.max_new_tokens < limit

    kept = suite.where(fits)
    if not kept.cases:
        raise UsageProblem(f"no question fits into the model's context of {limit} tokens",
                           "give --max-new-tokens less, shorter questions, or another --model")
    if kept == suite:
        return suite, []
    lost = {task: sum(c.task == task for c in suite.cases) - sum(c.task == task for c in kept.cases)
            for task in suite.tasks}
    words = ", ".join(f"{n} of {task}" for task, n in lost.items() if n)
    return kept, [f"questions too long for the context of {limit} tokens are left out: {words}"]
