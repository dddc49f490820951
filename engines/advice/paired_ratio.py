"""A speed-up over the same prompts, and how far it can be off: on these prompts, and on others like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from engines.advice.pass_times import Key
from engines.race.interval import student

Pace = tuple[float, float]
"""(tokens, seconds) of a run."""

_FEWEST = 3


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Tokens a second over those of another lane, all runs together.

    Attributes:
        ratio: of the totals.
        noise: how far it is off on these prompts, 95%: what single runs are off by. None where that is not known.
        spread: how far off for other prompts like these, 95%: the jackknife's standard error over the prompts times
            Student's quantile. None for fewer than three of them.
        each: the ratio on each prompt alone, ascending.
    """

    ratio: float
    noise: float | None
    spread: float | None
    each: tuple[float, ...]

    @property
    def samples(self) -> int:
        """Prompts."""
        return len(self.each)

    @property
    def ahead(self) -> int:
        """Prompts on which it is the faster one."""
        return sum(ratio > 1 for ratio in self.each)

    @classmethod
    def of(cls, mine: Mapping[Key, Pace], theirs: Mapping[Key, Pace], noise: float | None = None) -> PairedRatio | None:
        """The ratio of two lanes over the runs that both have; None where there is none, or nothing was timed.
        ``noise``: of a single run, as a share of its time: ``PassTimes.noise``."""
        both = [key for key in mine if key in theirs and all((*mine[key], *theirs[key]))]
        if not both:
            return None
        prompts = sorted({prompt for _, prompt in both})
        groups = [[key for key in both if key[1] == prompt] for prompt in prompts]
        pairs = [(_sum(mine[key] for key in group), _sum(theirs[key] for key in group)) for group in groups]
        ratio = _ratio(pairs)
        known = None if noise is None else ratio * noise * sum(
            _share_squared(lane[key][1] for key in both) for lane in (mine, theirs)) ** 0.5
        return cls(ratio, known, _spread(pairs), tuple(sorted(_ratio([pair]) for pair in pairs)))


def _sum(runs) -> Pace:
    tokens, seconds = zip(*runs)
    return sum(tokens), sum(seconds)


def _ratio(pairs: Sequence[tuple[Pace, Pace]]) -> float:
    (tokens, seconds), (others, other_seconds) = _sum(a for a, _ in pairs), _sum(b for _, b in pairs)
    return tokens / seconds / (others / other_seconds)


def _share_squared(seconds) -> float:
    """The variance of a sum of times over the square of the sum, where each has a variance of its square."""
    seconds = list(seconds)
    return sum(value * value for value in seconds) / sum(seconds) ** 2


def _spread(pairs: Sequence[tuple[Pace, Pace]]) -> float | None:
    n = len(pairs)
    if n < _FEWEST:
        return None
    without = [_ratio([*pairs[:i], *pairs[i + 1 :]]) for i in range(n)]
    mean = fmean(without)
    return ((n - 1) / n * sum((value - mean) ** 2 for value in without)) ** 0.5 * student(n - 1)
