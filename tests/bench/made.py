"""Benchmarks whose every number is made up: lanes, tasks, tokens and seconds."""

from __future__ import annotations

from collections.abc import Callable

from engines.bench.bench_results import BenchResults
from engines.bench.hf_generate import GenerateLane, generate_lanes
from engines.bench.suite import Suite, parse
from engines.race.lanes import Lane, Race, parse_lanes
from engines.race.race_events import (
    Compared,
    LaneEvents,
    LaneFinished,
    LaneStarted,
    RaceFinished,
    RaceStarted,
)
from engines.race.token_times import TokenTimes
from engines.report.events import Draft, Emitted, Failed, Finished, Origin, Prefilled, Round, Started
from engines.request import Request
from spec_tui.export import bench_report
from spec_tui.export.bench_report import Benchmark
from spec_tui.export.report import WRITERS

SUITE = '{"prompt": "a", "category": "copy"}\n{"turns": ["b", "c"], "category": "chat"}'
OURS = parse_lanes(["autoregressive,pld,rest:c=16"])
LANES = (*OURS, *generate_lanes(OURS))
"""autoregressive, pld, rest, generate, generate+lookup"""

Speed = Callable[[int, int, int], TokenTimes | None]
"""By lane, repeat, prompt; None where it did not run."""


def pace(
    later: int, seconds: float, first: int = 1, first_seconds: float = 0.5, rounds: int | None = None
) -> TokenTimes:
    return TokenTimes(first, first_seconds, later, seconds, later if rounds is None else rounds)


def race_of(lanes: tuple[Lane, ...] = LANES, suite: Suite | None = None, repeats: int = 2) -> Race:
    suite = suite or parse(SUITE, "made")
    return Race(lanes, Request((), max_new_tokens=9), suite.prompts, repeats)


def standings(
    speed: Speed, lanes: tuple[Lane, ...] = LANES, repeats: int = 2, suite: Suite | None = None,
    breaks: dict[int, int] | None = None, reason: str = "done", pairs: tuple[Compared, ...] = (),
) -> BenchResults:
    """A benchmark with these token times. ``breaks``: by lane, the repeat in which it fails."""
    suite = suite or parse(SUITE, "made")
    told: list[TokenTimes] = []
    found = BenchResults(suite, lambda: told[-1] if told else None)
    count = len(suite.places)
    found.add(RaceStarted(lanes, count, repeats, race_of(lanes, suite).baseline))
    for repeat in range(repeats):
        for prompt in range(count):
            for lane, kind in enumerate(lanes):
                made = speed(lane, repeat, prompt)
                if made is not None:
                    told.append(made)
                    failed = (breaks or {}).get(lane, repeats) <= repeat
                    for event in _run(kind, lane, repeat, prompt, made, failed):
                        found.add(event)
    for pair in pairs or [Compared(0, 1, prompt, "same") for prompt in range(count)]:
        found.add(pair)
    found.add(RaceFinished(reason))
    return found


def _run(kind: Lane, lane: int, repeat: int, prompt: int, made: TokenTimes, failed: bool):
    yield LaneStarted(lane, repeat, prompt, 1, 1)
    tokens = made.first + made.later
    failure = Failed("it broke", "mend it") if failed else None
    yield LaneFinished(lane, repeat, prompt, tokens, 1.0, 3.0, 1000, 0.1, 0.0, failure)
    yield LaneEvents(lane, repeat, prompt)
    yield Started(
        kind.engine, {}, "exact", 0.0, 1.0, 0, 0, 9, "model", "float32", "cpu", (1, 2), machine={"cpus": 2},
        versions={"torch": "9.9"},
    )
    yield Prefilled(2, 0, 0.25, Emitted(7, "a", "a", "target"), 2)
    if failed:
        return
    drafts = not isinstance(kind, GenerateLane) and kind.engine != "autoregressive"
    draft = Draft((9, 4), (-1, 0), ("x", "y"), (None, None), (0, 0), (Origin("prompt"),)) if drafts else Draft()
    for index in range(1, made.rounds + 1):
        path = (0,) if drafts else ()
        share = made.later * index // made.rounds - made.later * (index - 1) // made.rounds
        emitted = (Emitted(8, "b", "b", "target"),) * share
        yield Round(index, 2 + index, draft, path, emitted, 0.0, 1.0, 0.0, 2 + index)
    yield Finished("length", (7,) * tokens, "a" * tokens)


FACTS = {
    "machine": {"model": "A processor", "cpus": 2, "device": "cpu", "memory_bytes": 8 << 30},
    "versions": {"torch": "9.9"}, "threads": 2, "omp_wait_policy": None, "dtype": "float32", "price": [],
    "models": {"target": {"name": "/home/somebody/models/target", "parameters": 12_000_000, "backend": "lean"}},
}


def written(form: str, done: Benchmark) -> str:
    return WRITERS[form](bench_report.report(done))


def report(found: BenchResults, repeats: int = 2, left_out: tuple[str, ...] = ()) -> Benchmark:
    return Benchmark(found, race_of(found.lanes, found.suite, repeats), FACTS, list(left_out))
