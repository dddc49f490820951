"""What an adviser will do, known before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from engines.advice.halving import AnswerPace, Plan
from engines.race.lanes import Lane


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What an evaluation will do.

    Attributes:
        plan: the rounds, and the methods that take part, the likeliest first.
        lanes: the settings of all methods that can run; ``likeliest`` these methods, those first that are likeliest to
            gain.
        pace: of the baseline by t(n); None where that is not known.
        left_out: by the id of a method why it can't take part.
        forecasts: by method what t(n), what drafting costs and the acceptance that is expected before any is seen come
            to; without those of which nothing is known before they run.
    """

    plan: Plan
    lanes: tuple[Lane, ...]
    likeliest: tuple[tuple[str, str], ...]
    pace: AnswerPace | None
    left_out: dict[str, str]
    forecasts: dict[tuple[str, str], float]
