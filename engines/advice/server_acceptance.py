"""How many tokens a server should draft, by what it accepted of its drafts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import LinearRegression, linear_regression

from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.report.events import Round, RunEvent
from engines.report.metrics import measure, together

_FEWEST = 8  # timed rounds that say what a drafted token costs


@dataclass(frozen=True, slots=True)
class ServerAcceptance:
    """What is known of a server's drafts.

    Attributes:
        answers: that were read.
        drafted: tokens in all; None where the server does not say.
        tokens_per_step: the mean generated length; None where the server does not say what a step is.
        accepted: by depth, the share of the tokens tried there that were accepted; empty where it does not say.
        row: what one more drafted token adds to a step, as a share of a step without a draft, by rounds with drafts of
            several sizes; None where there were none, or the server gives no times of rounds.
    """

    answers: int
    drafted: int | None
    tokens_per_step: float | None
    accepted: tuple[float, ...]
    row: float | None

    @classmethod
    def of(cls, runs: Iterable[Sequence[RunEvent]]) -> ServerAcceptance:
        """By the events of its answers."""
        runs = list(runs)
        metrics = together(measure(events) for events in runs)
        timed = [(len(e.draft.tokens), e.verify_seconds) for events in runs for e in events
                 if isinstance(e, Round) and e.known == "all" and e.verify_seconds]
        return cls(len(runs), metrics.drafted, metrics.mean_generated_length or None,
                   tuple(metrics.by_depth), _row(timed))

    @property
    def model(self) -> SpeedupModel:
        """The forecast, in steps without a draft for seconds; what is drafted is free where ``row`` is not known."""
        price = CostCurve(((1, 1.0), (2, 1.0 + (self.row or 0.0))))
        return SpeedupModel(price, most=len(self.accepted), chances=self.accepted)

    @property
    def expected(self) -> tuple[float, ...]:
        """Tokens of a step with drafts of 0, 1, 2 and more tokens, as far as they were tried."""
        return tuple(map(self.model.expected, range(len(self.accepted) + 1)))

    @property
    def best(self) -> int | None:
        """The size with the most tokens for its time; None where it is not known what a token costs."""
        if self.row is None or not self.accepted:
            return None
        return self.model.best

    def pays_below(self, size: int) -> float:
        """How much the last token of a draft of this size may cost, as ``row``, to gain more than it takes."""
        before, after = self.expected[size - 1 : size + 1]
        return (after - before) / (size * before - (size - 1) * after)


def _row(timed: Sequence[tuple[int, float]]) -> float | None:
    if len(timed) < _FEWEST or len({size for size, _ in timed}) < 2:
        return None
    found: LinearRegression = linear_regression(*zip(*timed))
    return max(0.0, found.slope) / found.intercept if found.intercept > 0 else None
