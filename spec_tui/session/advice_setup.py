"""An adviser for the models that are loaded: for the command line, and in the engine process for a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engines import methods
from engines.errors import SpecError, UsageProblem
from engines.methods.spec import MethodSpec
from engines.request import Request
from spec_tui.session.settings import unavailable

if TYPE_CHECKING:
    from engines.advice.adviser import Adviser
    from engines.bench.suite import Suite
    from engines.report.events import Prefilling
    from engines.runtime import Runtime
    from engines.wire import Event

_WARM = 0.8  # the other temperature, where answers are greedy
_PACE = 0.5  # of the tokens a second that t(n) promises: prompts are read too, and other programs run


def prepare(
    decoder: Runtime, suite: Suite, request: Request, seconds: float, draft_models: Sequence[str] = ()
) -> tuple[Adviser, dict[str, str], list[str]]:
    """An adviser for the loaded models, and for ``draft_models`` besides; by method why it takes no part; what
    is to be said of the prompts. Raises UsageProblem where no prompt fits or no engine can run."""
    from engines.advice.adviser import Adviser
    from engines.advice.known_answers import known_to
    from engines.advice.trial_lanes import candidates
    from engines.bench.bench_runner import BenchRunner, fitting

    suite, notes = fitting(BenchRunner(decoder), suite, request)
    ready = decoder.ready

    def missing(spec: MethodSpec, options: Mapping[str, Any], draft_model: str) -> str:
        return unavailable(spec, ready, options, request.datastores, draft_model)

    lanes, left_out = candidates(missing, ready.model, draft_models)
    if not lanes:
        raise UsageProblem("no engine can run here", next(iter(left_out.values()), "see spec-tui engines"))
    searching = [lane for lane in lanes if methods.find(lane.engine).retrieves(lane.options)]
    stores = []
    if searching:
        try:
            stores = decoder.open_datastores.sparse(request.datastores)
        except SpecError:  # its lane says so
            stores = []
    rate = _PACE / ready.price[0][1] if ready.price else None
    adviser = Adviser(decoder, lanes, suite, request, seconds, rate=rate, known=known_to(stores),
                      temperature=0.0 if request.temperature else _WARM)
    return adviser, left_out, notes


def advice(
    decoder: Runtime, suite: Suite, request: Request, seconds: float, cancelled: Callable[[], bool],
    progress: Callable[[Prefilling], None],
) -> Iterator[Event]:
    """The same at work, for a reader in another process: the events of a round's runs come when its last run is over.

    Raises:
        UsageProblem, SpecError: as ``prepare`` and ``Adviser.run``.
    """
    from engines.advice.advice_events import AdviceFinished, AdviceStarted
    from engines.race.runner import defer_events

    adviser, left_out, notes = prepare(decoder, suite, request, seconds)
    yield AdviceStarted(suite=adviser.suite, rounds=len(adviser.stages), left_out=left_out, notes=tuple(notes))
    yield from defer_events(adviser.run(cancelled, progress))
    yield AdviceFinished(adviser.finished)
