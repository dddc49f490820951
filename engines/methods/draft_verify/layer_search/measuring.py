"""What a set of sublayers is worth: tokens a second of drafting without it, over those of autoregressive decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.errors import RunFailed, UsageProblem
from engines.methods.draft_verify.layer_search.search_store import SearchTrial
from engines.model.skipped_layers import SkippedLayers
from engines.report.metrics import Metrics, measure
from engines.request import Request

if TYPE_CHECKING:
    from engines.runtime import Runtime


class Bench:
    """Measures sets on prompts. Every trial writes every answer twice, with the draft and without, in turns, so that
    both meet the same weather; greedy, prefills not counted, and nothing is remembered from trial to trial.

    Args:
        any_: a set to warm up with.

    Raises:
        UsageProblem: a prompt that the model cannot be asked; its number is named.
    """

    def __init__(self, runtime: Runtime, prompts: Sequence[str], tokens: int, any_: SkippedLayers) -> None:
        self._runtime, self._prompts, self._tokens = runtime, list(prompts), tokens
        self._trials = 0
        self._warm_up(any_)

    def __call__(self, removed: SkippedLayers) -> SearchTrial:
        """One trial. Raises RunFailed where the model breaks, or has nothing to say."""
        drafting, plain = [], []
        self._runtime.forget_acceptance()
        for number, prompt in enumerate(self._prompts, start=self._trials):
            for with_draft in (number % 2 == 0, number % 2 == 1):
                if with_draft:
                    drafting.append(self._run(prompt, removed))
                else:
                    plain.append(self._run(prompt))
        self._trials += 1
        speed, baseline = _speed(drafting), _speed(plain)
        drafted = sum(metrics.drafted for metrics in drafting)
        accepted = sum(metrics.accepted for metrics in drafting)
        return SearchTrial(str(removed), speed / baseline, speed, baseline, accepted / drafted if drafted else None)

    def _run(self, prompt: str, removed: SkippedLayers | None = None) -> Metrics:
        engine, options = ("draft-verify", {"layers": str(removed)}) if removed else ("autoregressive", {})
        request = Request((("user", prompt),), engine, options, max_new_tokens=self._tokens)
        return measure(self._runtime.run(request))

    def _warm_up(self, any_: SkippedLayers) -> None:
        """Ask every prompt once: what cannot be asked is said before anything is measured."""
        for number, prompt in enumerate(self._prompts, start=1):
            try:
                self._run(prompt)
            except UsageProblem as error:
                what = f"prompt {number} of {len(self._prompts)}: {error.message}"
                raise UsageProblem(what, "shorten it, or leave it out") from None
        self._run(self._prompts[0], any_)


def _speed(runs: list[Metrics]) -> float:
    """Tokens a second of all answers together."""
    tokens, seconds = sum(m.new_tokens - 1 for m in runs), sum(m.decode_seconds for m in runs)
    if tokens < 1 or seconds <= 0:
        raise RunFailed("the model ends its answers at once, so there is no speed to measure", "give other --prompts")
    return tokens / seconds
