"""Successive halving: many settings on a few short answers, few settings on many long ones.

The first round compares the methods with their defaults, the second all settings of the better half of them, and the
last one, the final, the three best settings: it gets half of the time. What that leaves tries these three at another
temperature, where there is one. Source of the idea: Jamieson and Talwalkar 2016; Karnin et al. 2013.

Where the time is short, the final comes first: it needs answers that are long enough to judge. Earlier rounds are
planned for as many methods as the rest suffices for, the likeliest first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from engines.bench.suite import Case, Suite
from engines.race.lanes import Lane

FINALISTS = 3
WARM = 8  # tokens of a warm-up: there are many, and after the first few the machine is awake
_SHORTEST = 32  # tokens of an answer: less tells little of a drafter
_PROMPTS = 8  # that a round should have time for: what one prompt says of a drafter is not true of another
_FEW_PROMPTS = 3  # the same of a round that only leaves out what is clearly slow
_ENOUGH = 96  # tokens of an answer that tells how long drafts are of use


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


@dataclass(frozen=True, slots=True)
class AnswerPace:
    """How long answers take.

    Attributes:
        rate: tokens a second of one lane.
        overhead: seconds of an answer before its first round.
        most: tokens that are asked for.
        prompts: how many there are.
    """

    rate: float
    overhead: float
    most: int
    prompts: int

    def seconds(self, lanes: int, prompts: int, tokens: int) -> float:
        """Of a round in which so many lanes answer so many prompts with so many tokens each."""
        return lanes * min(prompts, self.prompts) * (min(tokens, self.most) / self.rate + self.overhead)


@dataclass(frozen=True, slots=True)
class Plan:
    """What there is time for: the rounds, and the methods that take part in them."""

    stages: tuple[Stage, ...]
    methods: tuple[Hashable, ...]


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


def plan(groups: Sequence[Hashable], likeliest: Sequence[Hashable], seconds: float, pace: AnswerPace | None) -> Plan:
    """The rounds for settings of these methods within a time, and as many methods, the likeliest first, as can be
    compared in it by answers that are long enough to judge.

    Args:
        groups: of each setting its method.
        likeliest: the methods, those first that are likeliest to gain.
        pace: None where it is not known; then all take part.
    """
    everything = Plan(tuple(stages(groups)), tuple(likeliest))
    if pace is None or len(likeliest) <= FINALISTS:
        return everything
    left = seconds - pace.seconds(1 + FINALISTS, _PROMPTS, _ENOUGH)
    compared = int(left / pace.seconds(1, _FEW_PROMPTS, _SHORTEST)) - 1  # beside the baseline
    if compared <= FINALISTS:
        return Plan((Stage.FINAL,), tuple(likeliest[:FINALISTS]))
    taking_part = tuple(likeliest[:compared])
    left -= pace.seconds(1 + len(taking_part), _FEW_PROMPTS, _SHORTEST)
    settings = sum(group in taking_part[: kept(len(taking_part))] for group in groups)
    if pace.seconds(1 + settings, _FEW_PROMPTS, _SHORTEST) <= left:
        return Plan(everything.stages, taking_part)
    return Plan((Stage.METHODS, Stage.FINAL), taking_part)


def kept(methods: int) -> int:
    """How many methods go on."""
    return max(FINALISTS, -(-methods // 2))


def round_seconds(left: float, number: int, rounds: int) -> float:
    """Seconds for round ``number`` (from 0) of those that are left, where each took its share: the final gets half of
    the whole time, the others the same share each of the other half."""
    return left if number == rounds - 1 else left / (2 * (rounds - 1) - number)


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
