"""What an adviser at work says beside the events of its races."""

from __future__ import annotations

from dataclasses import dataclass, field

from engines.bench.suite import Case, Suite
from engines.race.lanes import Race


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceStarted:
    """It begins: the prompts that fit, how many rounds there will be, by method why it takes no part, and what is to be
    said of the prompts."""

    suite: Suite
    rounds: int
    left_out: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreeningStarted:
    """A round begins, ``number`` from 1, with so many seconds: a race, and its prompts with their kinds. ``final``:
    whether a verdict is made of its numbers."""

    number: int
    rounds: int
    seconds: float
    asked: Race
    suite: Suite
    final: bool


@dataclass(frozen=True, slots=True)
class ScreeningFinished:
    """A round is over: the numbers of its prompts that do not count, and of all rounds so far the questions that are
    held out, and how many count although a datastore has their answers."""

    held_out: tuple[int, ...] = ()
    questions: tuple[Case, ...] = ()
    copied: int = 0


@dataclass(frozen=True, slots=True)
class AdviceFinished:
    """It is over."""


AdviceEvent = AdviceStarted | ScreeningStarted | ScreeningFinished | AdviceFinished
