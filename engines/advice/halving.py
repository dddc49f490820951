"""Successive halving: many settings on a few short answers, few settings on many long ones.

The first round compares the methods with their defaults, the second all settings of the better half of them, and the
last one, the final, the three best settings: it gets half of the time. The last 15 % of the time try these three at
another temperature, where there is one. Source of the idea: Jamieson and Talwalkar 2016;
Karnin et al. 2013.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from enum import StrEnum

from engines.bench.suite import Case, Suite

FINALISTS = 3
CHECK = 0.15  # of the time, for another temperature
WARM = 8  # tokens of a warm-up: there are many, and after the first few the machine is awake
_SHORTEST = 32  # tokens of an answer: less tells little of a drafter
_PROMPTS = 8  # that a round should have time for: what one prompt says of a drafter is not true of another


class Stage(StrEnum):
    """What a round compares."""

    METHODS = "methods"
    SETTINGS = "settings"
    FINAL = "final"
    TEMPERATURE = "temperature"


def stages(groups: Sequence[Hashable]) -> list[Stage]:
    """The rounds for settings of these methods: only the final where there are few, and no round that drops nothing."""
    count, methods = len(groups), len(set(groups))
    if count <= FINALISTS:
        return [Stage.FINAL]
    several = [Stage.METHODS] * (methods > FINALISTS) + [Stage.SETTINGS] * (count > methods)
    return [*several, Stage.FINAL]


def kept(methods: int) -> int:
    """How many methods go on."""
    return max(FINALISTS, -(-methods // 2))


def share(left: float, number: int, rounds: int) -> float:
    """Seconds for round ``number`` (from 0) of those that are left: the final gets as much as all others together."""
    if number == rounds - 1:
        return left
    return left / (2 * (rounds - 1 - number))


def survivors(scores: Sequence[float | None], groups: Sequence[Hashable], keep: int) -> list[int]:
    """The places of the settings that go on, the best first; those without a score do not.

    The last place goes to the best of another group (the method) where all others are of one: a verdict should compare
    methods too, and not the settings of one.
    """
    ranked = sorted((n for n, score in enumerate(scores) if score is not None), key=lambda n: -scores[n])
    best = ranked[:keep]
    if keep > 1 and len({groups[n] for n in best}) == 1:
        other = next((n for n in ranked[keep:] if groups[n] != groups[best[0]]), None)
        best = best if other is None else [*best[:-1], other]
    return best


def answer_length(seconds: float, rate: float | None, overhead: float, lanes: int, prompts: int, most: int) -> int:
    """Tokens of an answer, so that a round has time for eight prompts, or for all where there are fewer.

    Args:
        seconds: of the round.
        rate: tokens a second of one lane; None where it is not known.
        overhead: seconds of an answer before its first round.
        lanes: that run, the baseline among them.
        most: tokens that are asked for.
    """
    if not rate:
        return min(most, 2 * _SHORTEST)
    each = seconds / lanes / max(1, min(prompts, _PROMPTS))
    return min(most, max(_SHORTEST, int((each - overhead) * rate)))


def sampled(suite: Suite, most: int) -> Suite:
    """At most so many questions, of all kinds in turns, and of each kind spread evenly over those that it has."""
    few = suite.limited(-(-most // len(suite.tasks)))
    return replace(few, cases=spread(few)[:most])


def spread(suite: Suite) -> tuple[Case, ...]:
    """The questions in turns by kind, so that the first few are of as many kinds as possible."""
    kinds = [[case for case in suite.cases if case.task == task] for task in suite.tasks]
    return tuple(cases[n] for n in range(max(map(len, kinds), default=0)) for cases in kinds if n < len(cases))
