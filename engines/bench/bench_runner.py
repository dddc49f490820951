"""Who runs: our engines on the runtime, ``generate`` on models of its own, each timed by the same clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

from engines import machine
from engines.bench.hf_generate import GenerateLane
from engines.bench.suite import Case, Suite
from engines.bench.token_times import TokenTimes
from engines.errors import SpecError, UsageProblem
from engines.race.lanes import Lane
from engines.race.runner import Racer
from engines.report.answer import Answer
from engines.report.events import Audited, Finished, Prefilled, Ready, Round, RunEvent, Started
from engines.request import Request


class BenchDecoder(Racer, Protocol):
    """What a benchmark needs of a loaded model: ``engines.runtime.Runtime``, or a stand-in of the tests."""

    ready: Ready

    def prompt_length(self, request: Request) -> int: ...


class GenerateRunner(Protocol):
    """Who runs generate: ``engines.bench.generate_runs.Generator``, or a stand-in of the tests."""

    token_times: TokenTimes | None

    def run(self, request: Request, lane: GenerateLane, cancelled: Callable[[], bool]) -> Iterator[RunEvent]: ...

    def memory(self, lane: GenerateLane, rows: int) -> int: ...


@dataclass(slots=True)
class BenchRunner:
    """A racer that runs our engines on the runtime, and calls of generate on their own models.

    Attributes:
        decoder, generator: those who run.
        token_times: of the last run that ended.
    """

    decoder: BenchDecoder
    generator: GenerateRunner | None = None
    token_times: TokenTimes | None = None

    def run(self, request: Request, cancelled: Callable[[], bool] = lambda: False) -> Iterator[RunEvent]:
        """A run of the engine, or the call of generate, that the request names. Raises as that does."""
        lane = GenerateLane(request.engine)
        if self.generator is not None and lane.call:
            yield from self.generator.run(request, lane, cancelled)
            self.token_times = self.generator.token_times
            return
        rounds, begun = 0, perf_counter()
        clock = begun
        for event in self.decoder.run(request, cancelled):
            if isinstance(event, Prefilled):
                clock = perf_counter()
            elif isinstance(event, Finished):
                self.token_times = TokenTimes(
                    first=1, first_seconds=clock - begun, later=len(event.tokens) - 1,
                    later_seconds=perf_counter() - clock, rounds=rounds,
                )
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
        """Bytes that an engine or a call of generate takes, with so many KV rows."""
        lane = GenerateLane(engine)
        if self.generator is not None and lane.call:
            return self.generator.memory(lane, rows)
        return self.decoder.memory(engine, rows)


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
        turns = [("user", turn) for turn in case.turns]
        lengths = [runner.decoder.prompt_length(replace(request, conversation=(*request.conversation, turn)))
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


def facts(decoder: BenchDecoder, starts: Iterable[Started]) -> dict[str, Any]:
    """On what a benchmark ran: the machine, the versions, the models and what decodes them, as a reader needs it to
    judge the numbers. Plain data; names of models as they were given. ``starts`` are those of its runs."""
    started = next((start for start in starts if start.versions), None)  # generate does not report them
    ready, total = decoder.ready, machine.ram()[0]
    draft = getattr(decoder, "draft", None)
    models = {"target": _model(ready.model, ready.parameters, ready.backend)}
    if ready.draft_model:
        models["draft model"] = _model(ready.draft_model, ready.draft_parameters, getattr(draft, "backend", None))
    return {
        "machine": {
            **(started.machine if started else {}), "model": machine.processor(), "device": ready.device,
            "memory_bytes": total,
        },
        "versions": started.versions if started else {},
        "threads": ready.threads,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "dtype": ready.dtype,
        "models": models,
        "price": [list(point) for point in ready.price],
    }


def _model(name: str, parameters: int | None, backend: str | None) -> dict[str, Any]:
    return {"name": name, "parameters": parameters, "backend": backend}
