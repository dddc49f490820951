"""Draft & Verify's self-speculation (Zhang et al. 2024): the target drafts without a fixed set of its sublayers, one
that an offline search found fastest (``engines.methods.draft_verify.layer_search``)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from engines.errors import UsageProblem
from engines.methods.draft_verify import SEARCHED
from engines.methods.draft_verify.layer_search import search_store
from engines.methods.drafter import Resources
from engines.methods.shared.self_draft import SelfDraft
from engines.model.skipped_layers import FORM, SkippedLayers
from engines.report.events import Layers, Rule, Unprepared

if TYPE_CHECKING:
    from engines.methods.draft_verify.layer_search.search_store import Search
    from engines.model.causal_model import CausalModel


class DraftVerify(SelfDraft):
    """Drafts with the same part of the target in every round of every run."""

    def __init__(self, resources: Resources, *, layers: str, **exit: Any) -> None:
        super().__init__(resources, **exit)
        self._search = _found(self.model) if layers.strip().lower() == SEARCHED else None
        word = self._search.best.skipped if self._search else layers
        removed = SkippedLayers.parse(word, len(self.sublayers))
        if not removed:
            raise UsageProblem("layers= names no sublayers, and the whole target cannot be its own draft", FORM)
        whole = self._layers()
        stuck = set(removed.attention) & set(whole.attention_stays), set(removed.mlp) & set(whole.mlp_stays)
        if any(stuck):
            words = SkippedLayers(*(tuple(sorted(layers)) for layers in stuck))
            raise UsageProblem(f"{self.model.name} cannot do without {words}", "take it out of layers=")
        self.layers = replace(whole, attention=_rules(removed.attention, whole), mlp=_rules(removed.mlp, whole))

    @classmethod
    def unprepared(cls, target: CausalModel) -> Unprepared | None:
        try:
            _found(target)
        except UsageProblem as error:
            file = search_store.file_of(search_store.identify(target))
            return Unprepared(f"{error.message}: {error.hint}", str(file))
        return None

    def remark(self) -> str:
        search, remark = self._search, super().remark()
        if search is None:
            return remark
        if search.found is None:
            return f"the search of layers is not finished: this is the best of {len(search.trials)} trials so far"
        if search.found.speed_up <= 1:
            reached = f"{search.found.speed_up:.2f}x of autoregressive decoding"
            return f"the search found no layers that are worth leaving out here: the best set reached {reached}"
        return remark


def _rules(removed: tuple[int, ...], layers: Layers) -> tuple[Rule, ...]:
    return tuple("search" if n in removed else "" for n in range(1, len(layers.attention) + 1))


def _found(target: CausalModel) -> Search:
    """The search of this model on this machine. Raises UsageProblem where there is none, or it is damaged."""
    identity = search_store.identify(target)
    search = search_store.find(identity)
    if search is not None and search.best is not None:
        return search
    hint = "search with spec-tui search-layers and the same --model, or name a set: layers=a3,a5-7,m4"
    others = [other.best for other in search_store.searches_elsewhere(identity) if other.best is not None]
    if others:
        hint += f"; elsewhere (another machine or dtype) {others[0].skipped} was found for it"
    raise UsageProblem("no layer search has been run for this model on this machine yet", hint)
