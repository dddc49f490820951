"""At how many concurrent requests drafting stops paying: what a drafter gains with each number of them, by t(n).

A server decodes its requests in one batch. Alone, a request's drafted rows come almost for free, since reading the
weights takes most of a pass; in a batch the rows of the others have used that room already. The model: ``b`` requests
that draft n tokens each take t(b(n + 1)) (``CostCurve.of_requests``), a draft model's step t(b) of its own, and every
request accepts as it does alone. Keys and values are read for each request, which takes longer the longer its context
is. Requests that come and go, waiting and memory are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel

LIMIT = 512  # requests that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served.

    Attributes:
        price: t(n) of the target; ``draft_price``: of the draft model, None for a drafter that takes next to no time.
        reading: seconds that a pass takes longer for a token of context; ``measured_at``: tokens of context that t(n)
            has in it; ``context``: tokens of context of each request, 0 for as many.
        most: the longest draft looked at.
    """

    price: CostCurve
    draft_price: CostCurve | None = None
    reading: float = 0.0
    measured_at: int = 0
    context: int = 0
    most: int = 16

    def by(self, requests: int) -> SpeedupModel:
        """Rounds of so many requests at once, drafting and not; tokens and speed-ups are those of each request."""
        context = self.context or self.measured_at
        beside = self.reading * (requests * context - self.measured_at)
        step = self.draft_price.of_requests(requests).at(1) if self.draft_price is not None else 0.0
        return SpeedupModel(self.price.of_requests(requests, beside), first=step, each=step, most=self.most)


@dataclass(frozen=True, slots=True)
class Point:
    """So many requests at once.

    Attributes:
        length: tokens to draft for the most tokens a second; 0 where drafting is slower.
        gain: tokens a second with it over those of drafting nothing, 1 where ``length`` is 0.
        pays_from: the least acceptance a token at which some length breaks even; None where none does.
    """

    requests: int
    length: int
    gain: float
    pays_from: float | None


def at(served: Served, requests: int, chances: Sequence[float]) -> Point:
    """What drafting gains for so many requests. ``chances``: as of ``SpeedupModel``."""
    model = replace(served.by(requests), chances=tuple(chances))
    best = model.best
    return Point(requests, best, model.speed_up(best) if best else 1.0, model.pays_from)


def stops_after(served: Served, chances: Sequence[float]) -> int | None:
    """The most requests at once for which drafting pays, as of ``last_paying``."""
    return last_paying(lambda requests: at(served, requests, chances).length > 0)


def last_paying(pays: Callable[[int], bool]) -> int | None:
    """The most requests at once for which drafting pays; 0 where it never does, None where it does for ``LIMIT``. Where
    it pays again for more requests (a step in t(n)), the first crossing counts."""
    return next((requests - 1 for requests in range(1, LIMIT + 1) if not pays(requests)), None)
