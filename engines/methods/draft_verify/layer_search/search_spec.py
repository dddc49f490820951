"""A search as it is asked for: checked before a model is loaded, gone on with or begun."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engines.errors import UsageProblem
from engines.methods.draft_verify.layer_search import search_store as kept
from engines.methods.draft_verify.layer_search.search import SearchProgress, search
from engines.methods.draft_verify.layer_search.search_store import Identity, Search, SearchSettings
from engines.model.skipped_layers import SkippedLayers

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel
    from engines.runtime import Runtime


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """What shall be searched.

    Attributes:
        prompts: that speed is measured on; what is found is best for prompts like these.
        trials: in all, those of earlier runs included.
        tokens: of each answer.
        fresh: forget what was searched before.
    """

    prompts: tuple[str, ...]
    trials: int = 100
    tokens: int = 32
    seed: int = 0
    fresh: bool = False

    def check(self) -> None:
        """Raises UsageProblem for what cannot be searched with any model."""
        if not self.prompts:
            raise UsageProblem("there are no prompts to measure on", "give --prompts a file with some")
        for name, value, least in (("trials", self.trials, 1), ("tokens", self.tokens, 2), ("seed", self.seed, 0)):
            if value < least:
                raise UsageProblem(f"--{name} {value} is too small", f"--{name} is at least {least}")

    @property
    def settings(self) -> SearchSettings:
        digest = hashlib.sha256(json.dumps(self.prompts).encode()).hexdigest()[:16]
        return SearchSettings(len(self.prompts), digest, self.tokens, self.seed)


def run(order: SearchSpec, runtime: Runtime, progress: Callable[[SearchProgress], None] = lambda _: None) -> Search:
    """Search the layers of the target, on from what an earlier run left. KeyboardInterrupt leaves the trials so far.

    Raises:
        UsageProblem: an earlier search had other settings, is damaged or under way; a prompt that cannot be asked; a
            model that cannot do without any sublayer.
        RunFailed: the model broke.
    """
    from engines.methods.draft_verify.layer_search.measuring import Bench

    order.check()
    identity = kept.identify(runtime.target)
    removable = removable_of(runtime.target)
    with kept.held(identity.id):
        begun = _begun(order, identity) or Search(Path(runtime.target.name).name, identity, order.settings)
        if begun.found is not None and len(begun.trials) >= order.trials:
            return begun
        bench = Bench(runtime, order.prompts, order.tokens, removable)
        return search(begun, removable, order.trials, bench, kept.save, progress)


def removable_of(target: CausalModel) -> SkippedLayers:
    """Every sublayer that a model can do without. Raises UsageProblem where its layers are not understood."""
    found = target.sublayers
    return SkippedLayers(tuple(sorted(n + 1 for n in found.attention)), tuple(sorted(n + 1 for n in found.mlp)))


def _begun(order: SearchSpec, identity: Identity) -> Search | None:
    """What there is to go on with."""
    found = None if order.fresh else kept.find(identity)
    if found is None or found.settings == order.settings:
        return found
    old = found.settings
    raise UsageProblem(
        f"this model was searched with other settings: {old.prompts} prompts, {old.tokens} tokens, seed {old.seed} "
        f"({len(found.trials)} trials)",
        "give the same to go on, or --fresh to begin anew",
    )
