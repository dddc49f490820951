"""A speed-up over the same prompts, and how far it can be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

Pace = tuple[float, float]
"""(tokens, seconds) of a run."""

_FEWEST = 3
_STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # 97.5 % quantiles by degrees of freedom
_NORMAL = 2.1  # beyond them


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """Tokens a second over those of another lane, all runs together.

    Attributes:
        ratio: of the totals.
        noise: 95 % of such samples of prompts give a ratio within plus or minus this: the jackknife's standard error
            times Student's quantile. How prompts differ is in it, and so is the machine. None for too few samples.
        samples: prompts, or where there are fewer than six of them, runs.
    """

    ratio: float
    noise: float | None
    samples: int

    @classmethod
    def of(cls, mine: Mapping[tuple[int, int], Pace], theirs: Mapping[tuple[int, int], Pace]) -> PairedRatio | None:
        """The ratio of two lanes over the runs that both have; None where there is none, or nothing was timed.

        Args:
            mine, theirs: by (repeat, prompt).
        """
        both = [key for key in mine if key in theirs]
        prompts = sorted({prompt for _, prompt in both})
        groups = [[key for key in both if key[1] == prompt] for prompt in prompts]
        if len(prompts) < 6:
            groups = [[key] for key in both]
        pairs = [(_sum(mine[key] for key in group), _sum(theirs[key] for key in group)) for group in groups]
        pairs = [(a, b) for a, b in pairs if a[1] > 0 and b[1] > 0 and a[0] > 0 and b[0] > 0]
        if not pairs:
            return None
        return cls(_ratio(pairs), _noise(pairs), len(pairs))


def _sum(runs) -> Pace:
    tokens, seconds = zip(*runs)
    return sum(tokens), sum(seconds)


def _ratio(pairs: Sequence[tuple[Pace, Pace]]) -> float:
    (tokens, seconds), (others, other_seconds) = _sum(a for a, _ in pairs), _sum(b for _, b in pairs)
    return tokens / seconds / (others / other_seconds)


def _noise(pairs: Sequence[tuple[Pace, Pace]]) -> float | None:
    n = len(pairs)
    if n < _FEWEST:
        return None
    without = [_ratio([*pairs[:i], *pairs[i + 1 :]]) for i in range(n)]
    mean = fmean(without)
    error = ((n - 1) / n * sum((value - mean) ** 2 for value in without)) ** 0.5
    return error * (_STUDENT[n - 2] if n - 2 < len(_STUDENT) else _NORMAL)
