"""A round of an adviser on a machine that is not here: what was accepted counts as measured, time as modelled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from engines import methods
from engines.advice.findings import BASELINE, Screening
from engines.cost.concurrent import last_paying
from engines.cost.curve import CostCurve
from engines.cost.other_machine import OtherMachine
from engines.report.events import Ready
from engines.report.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Modelled:
    """What a lane would do there: its speed over the baseline's, and the share of its time that drafting takes."""

    speed_up: float
    drafting: float


def modelled(screening: Screening, machine: OtherMachine, ready: Ready) -> dict[int, Modelled]:
    """The lanes by number, as far as enough is known of them; nothing where the target's t(n) there is not.

    Verifying takes t(n) there for the rows of every round, of all requests where several are decoded at once: then each
    has as many rows and tokens as here, passes that draft and verify are shared, and lookups and all else are not. A
    forward pass of a draft model takes its t(1) there, where only numbers of the machine are known that of a model of
    its size; of what else drafts with passes, the part of the target's that it takes here. Lookups, and what is outside
    of both, take as long as here.
    """
    return _modelled(_metrics(screening), screening, machine, ready)


def stops_after(screening: Screening, machine: OtherMachine, ready: Ready) -> dict[int, int | None]:
    """For each lane that is modelled, the baseline excepted, up to how many requests at once it is faster than the
    baseline there; 0 where it never is, None where it is for ``concurrent.LIMIT``."""
    metrics = _metrics(screening)
    found = cache(lambda requests: _modelled(metrics, screening, replace(machine, requests=requests), ready))
    return {lane: last_paying(lambda requests, lane=lane: found(requests)[lane].speed_up > 1)
            for lane in found(machine.requests) if lane != BASELINE}


def _metrics(screening: Screening) -> dict[int, Metrics]:
    """Of the lanes that did not break."""
    return {lane: screening.metrics(lane) for lane in range(len(screening.lanes)) if lane not in screening.failed}


def _modelled(
    metrics: Mapping[int, Metrics], screening: Screening, machine: OtherMachine, ready: Ready
) -> dict[int, Modelled]:
    price = _here(ready) if machine.here else machine.table or machine.pass_cost(ready.parameters)
    if price is None:
        return {}
    together = price.of_requests(machine.requests)
    rates: dict[int, tuple[float, float]] = {}
    for lane, m in metrics.items():
        drafting = _drafting(m, screening, lane, machine, ready, price)
        if not m.target_forwards or drafting is None or m.other_seconds is None:
            continue
        seconds = m.priced_by(together) + drafting + machine.requests * m.other_seconds
        rates[lane] = (m.new_tokens - m.answers) / seconds, drafting / seconds
    if BASELINE not in rates:
        return {}
    return {lane: Modelled(rate / rates[BASELINE][0], share) for lane, (rate, share) in rates.items()}


def _drafting(
    m: Metrics, screening: Screening, lane: int, machine: OtherMachine, ready: Ready, price: CostCurve
) -> float | None:
    """Seconds of drafting in all rounds of a lane, for all requests; None where not enough is known."""
    if m.draft_seconds is None:
        return None
    if not m.draft_forwards:
        return machine.requests * m.draft_seconds
    lookups = machine.requests * m.lookup_seconds  # they take as long as here
    setting = screening.lanes[lane]
    used = methods.find(setting.engine).used(setting.options, methods.available(ready.draft_model, ready.heads))
    if methods.DRAFT_MODEL in used and not setting.draft_model:
        there = CostCurve(ready.draft_price) if machine.here and ready.draft_price else None
        own = machine.draft_table or machine.pass_cost(ready.draft_parameters) or there
        if own is not None:
            return m.draft_forwards * own.of_requests(machine.requests).at(1) + lookups
    here = _here(ready)
    if here is None or not m.verify_seconds:
        return None
    slower = price.of_requests(machine.requests).at(1) / here.at(1)
    return (m.draft_seconds - m.lookup_seconds) * (m.priced_by(here) / m.verify_seconds) * slower + lookups


def _here(ready: Ready) -> CostCurve | None:
    """t(n) of the target on this machine."""
    return CostCurve(ready.price) if ready.price else None
