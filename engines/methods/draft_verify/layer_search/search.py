"""Draft & Verify's offline search: propose a set of sublayers, measure it, keep the result.

At the end the best sets are measured again, because the best of many measurements is partly luck.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Protocol

from engines.errors import RunFailed, UsageProblem
from engines.methods import baseline
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.draft_verify.layer_search.proposals import Proposals
from engines.methods.draft_verify.layer_search.search_store import Search, SearchSettings, SearchTrial
from engines.model.skipped_layers import SkippedLayers
from engines.progress import BuildProgress, ProgressReporter
from engines.report.metrics import Metrics, measure
from engines.request import Request

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel
    from engines.report.events import Event

METHOD = "draft-verify"
_FINALISTS, _REPEATS = 3, 3

Measure = Callable[[SkippedLayers], SearchTrial]


class MeasuredModel(Protocol):
    """A loaded model that answers requests (``engines.runtime.Runtime``)."""

    target: CausalModel

    def run(self, request: Request) -> Iterator[Event]:
        """Answers a request, as events."""

    def forget_acceptance(self) -> None:
        """Forgets what earlier runs taught about drafts."""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """How far the search has come, and the best trial so far."""

    step: BuildProgress
    best: SearchTrial | None


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """What to search.

    Attributes:
        prompts: the speed is measured on these; the set that is found is best for prompts like them.
        trials: how many in all, those of earlier runs included.
        tokens: length of each answer.
        fresh: forget what was searched before.
    """

    prompts: tuple[str, ...]
    trials: int = 100
    tokens: int = 32
    seed: int = 0
    fresh: bool = False

    def check(self) -> None:
        """Raises UsageProblem for a search that no model can do."""
        if not self.prompts:
            raise UsageProblem("there are no prompts to measure on", "give --prompts a file with some")
        for name, value, least in (("trials", self.trials, 1), ("tokens", self.tokens, 2), ("seed", self.seed, 0)):
            if value < least:
                raise UsageProblem(f"--{name} {value} is too small", f"--{name} is at least {least}")

    @property
    def settings(self) -> SearchSettings:
        digest = hashlib.sha256(json.dumps(self.prompts).encode()).hexdigest()[:16]
        return SearchSettings(prompts=len(self.prompts), digest=digest, tokens=self.tokens, seed=self.seed)


def run_search(
    spec: SearchSpec, model: MeasuredModel, progress: Callable[[SearchProgress], None] = lambda _: None
) -> Search:
    """Search the layers of the target, and continue what an earlier run left. KeyboardInterrupt leaves the trials.

    Raises:
        UsageProblem: an earlier search had other settings, is damaged or is running; the model cannot be asked a
            prompt; no sublayer of the model can be skipped.
        RunFailed: the model broke.
    """
    spec.check()
    identity = search_store.identify(model.target)
    removable = removable_of(model.target)
    with search_store.locked(identity.id):
        search = None if spec.fresh else search_store.find(identity)
        if search is None:
            search = Search(Path(model.target.name).name, identity, spec.settings)
        _check_settings(search, spec.settings)
        if search.found is not None and len(search.trials) >= spec.trials:
            return search
        runner = TrialRunner(model, spec.prompts, spec.tokens, removable)
        return extend_search(search, removable, spec.trials, runner, search_store.save, progress)


def _check_settings(search: Search, wanted: SearchSettings) -> None:
    old = search.settings
    if old != wanted:
        raise UsageProblem(
            f"this model was searched with other settings: {old.prompts} prompts, {old.tokens} tokens, seed {old.seed} "
            f"({len(search.trials)} trials)",
            "give the same to go on, or --fresh to begin anew",
        )


def removable_of(target: CausalModel) -> SkippedLayers:
    """Every sublayer that a model can do without. Raises UsageProblem if its structure is not understood."""
    found = target.sublayers
    return SkippedLayers(tuple(sorted(n + 1 for n in found.attention)), tuple(sorted(n + 1 for n in found.mlp)))


def extend_search(
    search: Search, removable: SkippedLayers, trials: int, measure: Measure, save: Callable[[Search], None],
    progress: Callable[[SearchProgress], None] = lambda _: None,
) -> Search:
    """Continue a search until it has so many trials or has tried every set; then measure the best ones again.

    Args:
        search: its trials are not repeated.
        removable: the sublayers that the model can do without.
        measure: tries a set; what it raises (KeyboardInterrupt too) ends the search and loses that trial only.
        save: called after each trial, and at the end.
    """
    proposals = Proposals(removable, search.settings.seed)
    for trial in search.trials:
        proposals.learn(SkippedLayers.parse(trial.skipped, search.identity.layers), trial.speed_up)
    reporter = ProgressReporter(
        "trials", "trials", lambda step: progress(SearchProgress(step, search.best)), len(search.trials)
    )
    while len(search.trials) < trials and (chosen := proposals.next()) is not None:
        trial = measure(chosen)
        proposals.learn(chosen, trial.speed_up)
        search = replace(search, trials=(*search.trials, trial), found=None)
        save(search)
        reporter.report(len(search.trials), trials)
    if search.found is None and search.trials:
        search = replace(search, found=_confirm(search, measure, progress))
        save(search)
    return search


def _confirm(search: Search, measure: Measure, progress: Callable[[SearchProgress], None]) -> SearchTrial:
    """The finalist with the best median of several measurements; the finalists are measured in turns."""
    finalists = sorted(search.trials, key=lambda trial: -trial.speed_up)[:_FINALISTS]
    reporter = ProgressReporter(
        "measuring the best again", "runs", lambda step: progress(SearchProgress(step, search.best))
    )
    repeats: dict[str, list[SearchTrial]] = {trial.skipped: [] for trial in finalists}
    for repeat in range(_REPEATS):
        for i, (skipped, measured) in enumerate(repeats.items(), start=1):
            measured.append(measure(SkippedLayers.parse(skipped, search.identity.layers)))
            reporter.report(repeat * len(repeats) + i, _REPEATS * len(repeats))
    return max(map(_median_trial, repeats.values()), key=lambda trial: trial.speed_up)


def _median_trial(repeats: list[SearchTrial]) -> SearchTrial:
    speed_ups = [trial.speed_up for trial in repeats]
    middle = next(trial for trial in repeats if trial.speed_up == median(speed_ups))
    return replace(middle, low=min(speed_ups), high=max(speed_ups))


class TrialRunner:
    """Measures a set of sublayers: tokens/s when drafting without it, over tokens/s of autoregressive decoding.

    Every trial writes every answer twice, with the draft and without, in turns, so that both meet the same load of the
    machine. Decoding is greedy, prefills are not counted, and nothing is remembered from trial to trial.

    Args:
        warm_up: a set to draft with before anything is measured.

    Raises:
        UsageProblem: the model cannot be asked one of the prompts; the message says which.
    """

    def __init__(self, model: MeasuredModel, prompts: Sequence[str], tokens: int, warm_up: SkippedLayers) -> None:
        self._model, self._prompts, self._tokens = model, list(prompts), tokens
        self._baseline = baseline().id
        self._trials = 0
        self._warm_up(warm_up)

    def __call__(self, skipped: SkippedLayers) -> SearchTrial:
        """One trial. Raises RunFailed if the model breaks or ends every answer at once."""
        drafting, baseline = [], []
        self._model.forget_acceptance()
        for number, prompt in enumerate(self._prompts, start=self._trials):
            for with_draft in (number % 2 == 0, number % 2 == 1):
                if with_draft:
                    drafting.append(self._run(prompt, skipped))
                else:
                    baseline.append(self._run(prompt))
        self._trials += 1
        speed, baseline_speed = _tokens_per_second(drafting), _tokens_per_second(baseline)
        drafted = sum(metrics.drafted for metrics in drafting)
        accepted = sum(metrics.accepted for metrics in drafting)
        return SearchTrial(
            skipped=str(skipped), speed_up=speed / baseline_speed, tokens_per_second=speed, baseline=baseline_speed,
            acceptance=accepted / drafted if drafted else None,
        )

    def _run(self, prompt: str, skipped: SkippedLayers | None = None) -> Metrics:
        engine, options = (METHOD, {"layers": str(skipped)}) if skipped else (self._baseline, {})
        request = Request((("user", prompt),), engine, options, max_new_tokens=self._tokens)
        return measure(self._model.run(request))

    def _warm_up(self, skipped: SkippedLayers) -> None:
        """Ask every prompt once, so that an impossible one is reported before anything is measured."""
        for number, prompt in enumerate(self._prompts, start=1):
            try:
                self._run(prompt)
            except UsageProblem as error:
                message = f"prompt {number} of {len(self._prompts)}: {error.message}"
                raise UsageProblem(message, "shorten it, or leave it out") from None
        self._run(self._prompts[0], skipped)


def _tokens_per_second(runs: list[Metrics]) -> float:
    """Speed over all answers together."""
    tokens, seconds = sum(m.new_tokens - 1 for m in runs), sum(m.decode_seconds for m in runs)
    if tokens < 1 or seconds <= 0:
        raise RunFailed("the model ends its answers at once, so there is no speed to measure", "give other --prompts")
    return tokens / seconds
