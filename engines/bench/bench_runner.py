"""Who runs: our engines on the runtime, ``generate`` on models of its own, each timed by the same clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines import machine
from engines.bench.hf_generate import GenerateLane, TokenTimes
from engines.bench.suite import Case, Suite
from engines.errors import SpecError, UsageProblem
from engines.race.lanes import Lane
from engines.race.peers import Peers
from engines.race.result import started_here
from engines.report.answer import Answer
from engines.report.events import Audited, Finished, Prefilled, Prefilling, Round, RunEvent, Started
from engines.request import Request

if TYPE_CHECKING:
    from engines.bench.generate_runs import Generator
    from engines.runtime import Runtime


@dataclass(slots=True)
class BenchRunner:
    """A racer that runs our engines on the runtime, and calls of generate on their own models.

    Attributes:
        decoder, generator: those who run; other programs are ``peers`` of the decoder.
        token_times: of the last run that ended.
    """

    decoder: Runtime
    generator: Generator | None = None
    token_times: TokenTimes | None = None
    peers: Peers = field(init=False)

    def __post_init__(self) -> None:
        self.peers = Peers(self.decoder)

    def run(
        self, request: Request, cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[Prefilling], None] = lambda event: None,
    ) -> Iterator[RunEvent]:
        """A run of the engine, or the call of generate, that the request names. Raises as that does."""
        lane = GenerateLane(request.engine)
        if self.generator is not None and lane.call:
            yield from self.generator.run(request, lane, cancelled)
            self.token_times = self.generator.token_times
            return
        rounds, begun = 0, perf_counter()
        clock = begun
        for event in self.peers.run(request, cancelled, progress):
            if isinstance(event, Started) and not event.machine:
                begun = perf_counter()  # another program, that was started or reached for this
            elif isinstance(event, Prefilled):
                clock = perf_counter()
            elif isinstance(event, Finished):
                self.token_times = TokenTimes(
                    first=1, first_seconds=clock - begun, later=len(event.tokens) - 1,
                    later_seconds=perf_counter() - clock, rounds=rounds,
                )
            rounds += isinstance(event, Round)
            yield event

    def audit(self, answer: Answer, *watched: Callable) -> Audited | None:
        """Any lane's answer against our target, read plainly; ``watched`` as ``Runtime.audit`` has it."""
        return self.peers.audit(answer, *watched)

    def forget(self) -> None:
        self.peers.forget()

    def forget_acceptance(self) -> None:
        self.peers.forget_acceptance()

    def memory(self, engine: str, options: Mapping[str, Any], rows: int, draft_model: str = "") -> int | None:
        """Bytes that an engine or a call of generate takes, with so many KV rows."""
        lane = GenerateLane(engine)
        if self.generator is not None and lane.call:
            return self.generator.memory(lane, rows)
        return self.peers.memory(engine, options, rows, draft_model)


def able(runner: BenchRunner, lanes: tuple[Lane, ...], request: Request) -> tuple[tuple[Lane, ...], list[str]]:
    """The lanes that can answer a request here, tried with two tokens; a sentence for each of the others."""
    fit, left_out = [], []
    for lane in lanes:
        try:
            for _ in runner.run(lane.of(replace(request, max_new_tokens=2))):
                pass
            fit.append(lane)
        except SpecError as error:
            hint = f" ({error.hint})" if error.hint else ""
            left_out.append(f"{lane.label} is left out: {error.message}{hint}")
    runner.forget()
    return tuple(fit), left_out


def fitting(runner: BenchRunner, suite: Suite, request: Request) -> tuple[Suite, list[str]]:
    """The cases whose turns fit into the model's context, each with an answer of full length between them; a sentence
    about the others. Raises UsageProblem where none does."""
    limit = runner.decoder.ready.context_limit

    def fits(case: Case) -> bool:
        lengths = [runner.decoder.prompt_length(replace(request, conversation=(*request.conversation, ("user", turn))))
                   for turn in case.turns]
        return sum(lengths) + (len(lengths) - 1) * request.max_new_tokens < limit

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


def facts(decoder: Runtime, starts: Iterable[Started]) -> dict[str, Any]:
    """On what a benchmark ran: the machine, the versions, the models and what decodes them, as a reader needs it to
    judge the numbers. Plain data; names of models as they were given. ``starts`` are those of its runs."""
    told = [start for start in starts if start.versions]  # generate does not report them
    started = started_here(told)
    ready, total = decoder.ready, machine.ram()[0]
    models = {"target": {"name": ready.model, "parameters": ready.parameters, "backend": ready.backend}}
    if ready.draft_model:
        models["draft model"] = {"name": ready.draft_model, "parameters": ready.draft_parameters,
                                 "backend": getattr(decoder.draft, "backend", None)}
    return {
        "machine": {
            **(started.machine if started else {}), "model": machine.processor(), "device": ready.device,
            "memory_bytes": total,
        },
        "versions": {name: version for start in told for name, version in start.versions.items()},
        "threads": ready.threads,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "dtype": ready.dtype,
        "models": models,
        "price": [list(point) for point in ready.price],
    }
