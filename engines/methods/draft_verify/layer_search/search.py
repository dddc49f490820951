"""The search: propose, measure, keep; at the end the best are measured again, since the best of many measurements is
partly luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from engines.datastores.building.progress import BuildProgress, Reporter
from engines.methods.draft_verify.layer_search.proposals import Proposals
from engines.methods.draft_verify.layer_search.search_store import Search, SearchTrial
from engines.model.skipped_layers import SkippedLayers

Measure = Callable[[SkippedLayers], SearchTrial]

_FINALISTS, _REPEATS = 3, 3


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far it is: a step (done, rate, time left), the best so far."""

    step: BuildProgress
    best: SearchTrial | None


def search(
    kept: Search, all_: SkippedLayers, trials: int, measure: Measure, save: Callable[[Search], None],
    progress: Callable[[SearchProgress], None] = lambda _: None,
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
        proposals.learn(SkippedLayers.parse(trial.skipped, kept.identity.layers), trial.speed_up)
    reporter = Reporter("trials", "trials", lambda step: progress(SearchProgress(step, kept.best)), len(kept.trials))
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


def _confirmed(kept: Search, measure: Measure, progress: Callable[[SearchProgress], None]) -> SearchTrial:
    """The finalists measured again in turns; the best by the median of the repeats."""
    best = sorted(kept.trials, key=lambda trial: -trial.speed_up)[:_FINALISTS]
    reporter = Reporter("measuring the best again", "runs", lambda step: progress(SearchProgress(step, kept.best)))
    again: dict[str, list[SearchTrial]] = {trial.skipped: [] for trial in best}
    for repeat in range(_REPEATS):
        for i, (skipped, found) in enumerate(again.items(), start=1):
            found.append(measure(SkippedLayers.parse(skipped, kept.identity.layers)))
            reporter.at(repeat * len(again) + i, _REPEATS * len(again))
    return max((_summary(found) for found in again.values()), key=lambda trial: trial.speed_up)


def _summary(repeats: list[SearchTrial]) -> SearchTrial:
    """The middle one, with the extremes."""
    ups = [trial.speed_up for trial in repeats]
    middle = next(trial for trial in repeats if trial.speed_up == median(ups))
    return replace(middle, low=min(ups), high=max(ups))
