"""On what a benchmark ran: the machine, the versions, the models and what decodes them. Plain data."""

from __future__ import annotations

import os
from typing import Any

from engines import machine
from engines.bench.bench_results import BenchResults
from engines.bench.bench_runner import BenchRunner


def facts(contest: BenchRunner, standings: BenchResults) -> dict[str, Any]:
    """Everything that a reader needs to judge the numbers; names of models as they were given."""
    starts = [run.started for run in standings.runs.values() if run.started]
    started = next((start for start in starts if start.versions), None)  # peers do not say
    ready, total = contest.decoder.ready, machine.ram()[0]
    draft = getattr(contest.decoder, "draft", None)
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
