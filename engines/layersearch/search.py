"""The search: propose, measure, keep; at the end the best are measured again, since the best of many measurements is
partly luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from engines.datastores.pace import Reporter, Step
from engines.layersearch.kept import Search, Trial
from engines.layersearch.proposals import Proposals
from engines.removed import Removed

Measure = Callable[[Removed], Trial]

_FINALISTS, _REPEATS = 3, 3


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: a step (done, rate, time left), the best so far."""

    step: Step
    best: Trial | None


def search(
    kept: Search, all_: Removed, trials: int, measure: Measure, save: Callable[[Search], None],
    progress: Callable[[Progress], None] = lambda _: None,
) -> Search:
    """Go on with a search until it has so many trials, or every set was tried; then confirm what is best.

    Args:
        kept: with the trials so far; they are not made again.
        all_: the sublayers that the model can do without.
        measure: tries a set; what it raises (KeyboardInterrupt too) ends the search, and costs that trial alone.
        save: called after each trial, and at the end.
    """
    proposals = Proposals(all_, kept.settings.seed)
    for trial in kept.trials:
        proposals.learn(Removed.parse(trial.skipped, kept.identity.layers), trial.speed_up)
    reporter = Reporter("trials", "trials", lambda step: progress(Progress(step, kept.best)), len(kept.trials))
    while len(kept.trials) < trials and (chosen := proposals.next()) is not None:
        trial = measure(chosen)
        proposals.learn(chosen, trial.speed_up)
        kept = replace(kept, trials=(*kept.trials, trial), found=None)
        save(kept)
        reporter.at(len(kept.trials), trials)
    if kept.found is None and kept.trials:
        kept = replace(kept, found=_confirmed(kept, measure, progress))
        save(kept)
    return kept


def _confirmed(kept: Search, measure: Measure, progress: Callable[[Progress], None]) -> Trial:
    """The finalists measured again in turns; the best by the median of the repeats."""
    best = sorted(kept.trials, key=lambda trial: -trial.speed_up)[:_FINALISTS]
    reporter = Reporter("measuring the best again", "runs", lambda step: progress(Progress(step, kept.best)))
    again: dict[str, list[Trial]] = {trial.skipped: [] for trial in best}
    for repeat in range(_REPEATS):
        for i, (skipped, found) in enumerate(again.items(), start=1):
            found.append(measure(Removed.parse(skipped, kept.identity.layers)))
            reporter.at(repeat * len(again) + i, _REPEATS * len(again))
    return max((_summary(found) for found in again.values()), key=lambda trial: trial.speed_up)


def _summary(repeats: list[Trial]) -> Trial:
    """The middle one, with the extremes."""
    ups = [trial.speed_up for trial in repeats]
    middle = next(trial for trial in repeats if trial.speed_up == median(ups))
    return replace(middle, low=min(ups), high=max(ups))
