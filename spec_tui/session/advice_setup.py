"""An adviser for the models that are loaded: for the command line, and in the engine process for a screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines import methods
from engines.advice import halving
from engines.advice.halving import EvaluationPlan
from engines.advice.trial_lanes import candidates
from engines.cost.budget import Acceptance
from engines.cost.curve import CostCurve
from engines.errors import SpecError, UsageProblem
from engines.methods.spec import MethodSpec
from engines.race.lanes import Lane
from engines.report.events import Ready
from engines.request import Request
from spec_tui.present.price_text import outlook
from spec_tui.session.settings import unavailable

if TYPE_CHECKING:
    from engines.advice.adviser import Adviser
    from engines.bench.suite import Suite
    from engines.report.events import Preparing
    from engines.runtime import Runtime
    from engines.wire import Event

_WARM = 0.8  # the other temperature, where answers are greedy
_PACE = 0.8  # of the tokens a second that t(n) promises: other programs run, too
_COPIES, _SEVERAL = "copies", "several"
_PROMPT = 64  # tokens that are read before an answer, as far as the plan knows


def foresee(
    ready: Ready, suite: Suite, request: Request, seconds: float, draft_models: Sequence[str] = ()
) -> EvaluationPlan:
    """What the loaded models, these prompts and the time allow, before anything runs. Raises UsageProblem where no
    engine can run."""
    def missing(spec: MethodSpec, options: Mapping[str, Any], draft_model: str) -> str:
        return unavailable(spec, ready, options, request.datastores, draft_model)

    lanes, left_out = candidates(missing, ready.model, draft_models)
    if not lanes:
        raise UsageProblem("no engine can run here", next(iter(left_out.values()), "see spec-tui engines"))
    first = {lane.method: lane for lane in reversed(lanes)}
    forecasts = {method: found for method, lane in first.items() if (found := _forecast(ready, lane)) is not None}
    parts = [found for method, found in forecasts.items() if methods.find(method[0]).drafts_from]
    forecasts |= {method: max(parts) for method in first if parts and _source(ready, method[0]) == _SEVERAL}
    likeliest = _in_order(list(dict.fromkeys(lane.method for lane in lanes)), ready, forecasts)
    pace = None
    if ready.price:
        price = CostCurve(ready.price)
        pace = halving.AnswerPace(_PACE / price.at(1), price.at(_PROMPT), request.max_new_tokens, len(suite.places))
    plan = halving.plan([lane.method for lane in lanes], likeliest, seconds, pace)
    return EvaluationPlan(plan, lanes, likeliest, pace, left_out, forecasts)


def _forecast(ready: Ready, lane: Lane) -> float | None:
    """The speed-up that is expected of a lane before it has run; None where nothing is known of its costs."""
    found = None if lane.draft_model else outlook(ready, lane.engine, lane.options)
    if found is None:
        return None
    copied = _source(ready, lane.engine) == _COPIES
    expected = replace(found.forecast, chances=tuple(Acceptance().chances(("", 0), copied)))
    return expected.speed_up(expected.best)


def _in_order(
    found: Sequence[tuple[str, str]], ready: Ready, forecasts: Mapping[tuple[str, str], float]
) -> tuple[tuple[str, str], ...]:
    """The methods, the likeliest to gain first: of each source of drafts the best one, since what is expected of
    sources is far less sure than what they cost; then the others, and those of which nothing is known last, except
    where somebody asked for a draft model."""
    ranked = sorted(found, key=lambda method: -forecasts.get(method, 0.0))
    places: dict[tuple[str, str], int] = {}
    seen: dict[str, int] = {}
    for method in ranked:
        source = _source(ready, method[0])
        places[method] = seen[source] = seen.get(source, -1) + 1
    return tuple(sorted(ranked, key=lambda method: (not (method in forecasts or method[1]), places[method])))


def _source(ready: Ready, engine: str) -> str:
    """What an engine drafts with."""
    spec = methods.find(engine)
    there = frozenset(methods.available(ready.draft_model, ready.heads))
    needed = spec.least(there)
    if any(there.intersection(helping) for helping in spec.helped_by.values()):
        return _SEVERAL
    if methods.DRAFT_MODEL in needed:
        return methods.DRAFT_MODEL
    if head := next((need for need in needed if need in ready.heads), None):
        return head
    return "itself" if spec.self_speculative else _COPIES


def prepare(
    decoder: Runtime, suite: Suite, request: Request, seconds: float, draft_models: Sequence[str] = ()
) -> tuple[Adviser, dict[str, str], list[str]]:
    """An adviser for the loaded models, and for ``draft_models`` besides; by method why it takes no part; what
    is to be said of the prompts. Raises UsageProblem where no prompt fits or no engine can run."""
    from engines.advice.adviser import Adviser
    from engines.advice.leakage import leak_check
    from engines.bench.entrants import fitting

    suite, notes = fitting(decoder, suite, request)
    ready = decoder.ready
    found = foresee(ready, suite, request, seconds, draft_models)
    searching = [lane for lane in found.lanes if methods.find(lane.engine).retrieves(lane.options)]
    stores = []
    if searching:
        try:
            stores = decoder.open_datastores.sparse(request.datastores)
        except SpecError:  # its lane says so
            stores = []
    adviser = Adviser(decoder, found.lanes, suite, request, seconds, pace=found.pace, plan=found.plan,
                      known=leak_check(stores), temperature=0.0 if request.temperature else _WARM)
    return adviser, found.left_out | _untried(found), notes


def _untried(found: EvaluationPlan) -> dict[str, str]:
    """Why methods take no part that could run."""
    short = "there is time only for the most promising, with answers that are long enough"
    known = {method: f"forecast {ratio:.1f}x" for method, ratio in found.forecasts.items()}
    return {method[0]: f"{short} ({known.get(method, 'nothing is known of it before it runs')})"
            for method in found.likeliest if method not in found.plan.methods}


def advice(
    decoder: Runtime, suite: Suite, request: Request, seconds: float, cancelled: Callable[[], bool],
    progress: Callable[[Preparing], None],
) -> Iterator[Event]:
    """The same at work, for a reader in another process: the events of a round's runs come when its last run is over.
    Raises UsageProblem, SpecError: as ``prepare`` and ``Adviser.run``."""
    from engines.advice.advice_events import AdviceFinished, AdviceStarted
    from engines.race.runner import defer_events

    adviser, left_out, notes = prepare(decoder, suite, request, seconds)
    yield AdviceStarted(suite=adviser.suite, rounds=len(adviser.stages), left_out=left_out, notes=tuple(notes))
    yield from defer_events(adviser.run(cancelled, progress))
    yield AdviceFinished()
