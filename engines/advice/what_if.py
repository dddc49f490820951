"""A round of an adviser on a machine that is not here: what was accepted counts as measured, time as modelled."""

from __future__ import annotations

from dataclasses import dataclass

from engines import methods
from engines.advice.findings import BASELINE, Screening
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

    Verifying takes t(n) there for the rows of every round. A forward pass of a draft model takes its t(1) there, where
    only numbers of the machine are known that of a model of its size; of what else drafts with passes, the part of the
    target's that it takes here. Lookups, and what is outside of both, take as long as here.
    """
    price = machine.table or machine.pass_cost(ready.parameters)
    if price is None:
        return {}
    rates: dict[int, tuple[float, float]] = {}
    for lane in range(len(screening.lanes)):
        m = screening.metrics(lane)
        drafting = _drafting(m, screening, lane, machine, ready, price)
        if lane in screening.failed or not m.target_forwards or drafting is None or m.other_seconds is None:
            continue
        verifying = sum(count * price.at(rows) for rows, count in m.rows.items())
        seconds = verifying + drafting + m.other_seconds
        rates[lane] = (m.new_tokens - m.answers) / seconds, drafting / seconds
    if BASELINE not in rates:
        return {}
    return {lane: Modelled(rate / rates[BASELINE][0], share) for lane, (rate, share) in rates.items()}


def _drafting(
    m: Metrics, screening: Screening, lane: int, machine: OtherMachine, ready: Ready, price: CostCurve
) -> float | None:
    """Seconds of drafting in all rounds of a lane; None where not enough is known."""
    if m.draft_seconds is None or not m.draft_forwards:
        return m.draft_seconds
    setting = screening.lanes[lane]
    used = methods.find(setting.engine).used(setting.options, methods.at_hand(ready.draft_model, ready.heads))
    if methods.DRAFT_MODEL in used and not setting.draft_model:
        own = machine.draft_table or machine.pass_cost(ready.draft_parameters)
        if own is not None:
            return m.draft_forwards * own.at(1)
    if not ready.price or not m.verify_seconds:
        return None
    here = CostCurve(ready.price)
    priced = sum(count * here.at(rows) for rows, count in m.rows.items())
    return m.draft_seconds * (priced / m.verify_seconds) * price.at(1) / here.at(1)
