"""Whether what is installed decodes right: a few tokens of the sample pair, held against ``transformers.generate``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

from engines import methods
from engines.bench import generate_runs
from engines.bench.hf_generate import generate_lanes
from engines.errors import SpecError, first_line
from engines.model.load_options import LoadOptions
from engines.race.lanes import Lane
from engines.report.answer import Answer
from engines.report.events import Finished
from engines.report.run_state import first_differing
from engines.request import Request
from engines.runtime import Runtime

TOKENS = 8
_PROMPT = "Tell me about a dog, a dog and a dog."


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """What an engine wrote.

    Attributes:
        problem: what is wrong, "" where its tokens are those of generate.
        seconds: that it took.
    """

    engine: str
    problem: str
    seconds: float


def check_engines() -> list[EngineCheck]:
    """Decode ``TOKENS`` tokens with each engine whose method ``generate`` has too, and compare their ids with those of
    plain ``generate``. Raises SpecError: the sample pair cannot be loaded, or generate fails."""
    runtime = Runtime.load(LoadOptions("sample"))
    engines = [spec.id for spec in methods.specs() if spec.generate is not None]
    request = Request((("user", _PROMPT),), max_new_tokens=TOKENS)
    plain, _ = generate_runs.load(runtime.ready, runtime.target.dtype, draft=False)
    lane, = generate_lanes([Lane(methods.baseline().id)])
    generator = generate_runs.Generator(plain, None, runtime)
    expected = next(event.tokens for event in generator.run(lane.of(request)) if isinstance(event, Finished))
    return [_checked(runtime, engine, request, expected) for engine in engines]


def _checked(runtime: Runtime, engine: str, request: Request, expected: tuple[int, ...]) -> EngineCheck:
    clock = perf_counter()
    try:
        found = Answer.from_events(runtime.run(replace(request, engine=engine))).tokens
        at = first_differing(found, expected)
        problem = "" if at is None else f"token {at + 1} differs from that of transformers.generate"
    except SpecError as error:
        problem = error.message
    except Exception as error:  # of a library in a version that nobody tried
        problem = first_line(error, named=True)
    return EngineCheck(engine, problem, perf_counter() - clock)
