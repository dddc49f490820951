"""What a benchmark begins with: which lanes can run, which questions fit, and on what machine it is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines import machine
from engines.bench.suite import Case, Suite
from engines.errors import SpecError, UsageProblem
from engines.race.lanes import Lane
from engines.race.result import started_here
from engines.race.runner import Racer
from engines.report.events import Started
from engines.request import Request

if TYPE_CHECKING:
    from engines.runtime import Runtime


def able(runner: Racer, lanes: tuple[Lane, ...], request: Request) -> tuple[tuple[Lane, ...], list[str]]:
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


def fitting(decoder: Runtime, suite: Suite, request: Request) -> tuple[Suite, list[str]]:
    """The cases whose turns fit into the model's context, each with an answer of full length between them; a sentence
    about the others. Raises UsageProblem where none does."""
    limit = decoder.ready.context_limit

    def fits(case: Case) -> bool:
        lengths = [decoder.prompt_length(replace(request, conversation=(*request.conversation, ("user", turn))))
                   for turn in case.turns]
        return sum(lengths) + (len(lengths) - 1) * request.max_new_tokens < limit

    kept = suite.where(fits)
    if not kept.cases:
        raise UsageProblem(f"no question fits into the model's context of {limit} tokens",
                           "give a smaller --max-new-tokens, shorter questions or another --model")
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
            "cpus": os.cpu_count(), **(started.machine if started else {}), "model": machine.processor(),
            "device": ready.device, "memory_bytes": total,
        },
        "versions": {name: version for start in told for name, version in start.versions.items()},
        "threads": ready.threads,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "dtype": ready.dtype,
        "models": models,
        "price": [list(point) for point in ready.price],
    }
