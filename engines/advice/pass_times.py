"""How far the times of passes are off what t(n) says: what is a lane's own, and what is noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean

from engines.race.interval import student

Key = tuple[int, int]
"""(repeat, prompt)"""


@dataclass(frozen=True, slots=True)
class PassTimes:
    """What passes took over what t(n) says of them, of several lanes that ran in turns on the same prompts.

    The logarithm is taken to be the sum of the lane's own (its passes over as many rows take longer than others'), the
    turn's (a long prompt, a machine that was slower for a while), and noise: an analysis of variance in two ways.

    Attributes:
        own: by lane, the factor of its own, shrunk as James and Stein do: what is within the noise is left out. Empty
            for too few runs.
        noise: 95% of such runs take their time within plus or minus this share of it; None for too few runs.
    """

    own: dict[int, float] = field(default_factory=dict)
    noise: float | None = None

    @classmethod
    def of(cls, scales: Mapping[int, Mapping[Key, float]]) -> PassTimes:
        """By lane and run, measured seconds over those by t(n), above 0; every lane has the same runs."""
        logs = {lane: {key: log(scale) for key, scale in runs.items()} for lane, runs in scales.items()}
        keys = list(next(iter(logs.values()), ()))
        freedom = (len(logs) - 1) * (len(keys) - 1)
        if not keys or freedom < 1:  # nothing can be told from noise
            return cls()
        turns = {key: fmean(runs[key] for runs in logs.values()) for key in keys}
        own = {lane: fmean(runs[key] - turns[key] for key in keys) for lane, runs in logs.items()}
        left = sum((runs[key] - turns[key] - own[lane]) ** 2 for lane, runs in logs.items() for key in keys)
        noise = student(freedom) * (left / freedom) ** 0.5
        told = {lane: value * max(0.0, 1 - noise**2 / len(keys) / value**2) if value else 0.0
                for lane, value in own.items()}
        return cls({lane: exp(value) for lane, value in told.items()}, noise)
