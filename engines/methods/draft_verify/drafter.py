"""Draft & Verify's self-speculation (Zhang et al. 2024): the target drafts without a fixed set of its sublayers.

Difference: the paper searches the set offline, by Bayesian optimisation of the measured speed; here the user names it,
or a plain rule chooses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engines.errors import UsageProblem
from engines.methods.draft_verify import MIDDLE
from engines.methods.drafter import Resources
from engines.methods.shared.self_draft import SelfDraft
from engines.model.skipped_layers import FORM, SkippedLayers
from engines.report.events import Layers, Rule


class DraftVerify(SelfDraft):
    """Drafts with the same part of the target in every round of every run."""

    def __init__(self, resources: Resources, *, layers: str, **exit: Any) -> None:
        super().__init__(resources, choice=(layers,), **exit)
        whole, middle = self._layers(), layers.strip().lower() == MIDDLE
        removed = _middle(whole) if middle else SkippedLayers.parse(layers, len(self.sublayers))
        if not removed:
            raise UsageProblem("layers= names no sublayers, and the whole target cannot be its own draft", FORM)
        stuck = set(removed.attention) & set(whole.attention_stays), set(removed.mlp) & set(whole.mlp_stays)
        if any(stuck):
            words = SkippedLayers(*(tuple(sorted(layers)) for layers in stuck))
            raise UsageProblem(f"{self.model.name} cannot do without {words}", "take it out of layers=")
        self.layers = replace(whole, attention=_rules(removed.attention, whole), mlp=_rules(removed.mlp, whole))


def _middle(whole: Layers) -> SkippedLayers:
    """The attention of every second layer of the middle half, of those that the model can do without."""
    count = len(whole.attention)
    middle = range(count // 4 + 1, count - count // 4 + 1, 2)
    return SkippedLayers(tuple(layer for layer in middle if layer not in whole.attention_stays))


def _rules(removed: tuple[int, ...], layers: Layers) -> tuple[Rule, ...]:
    return tuple("search" if n in removed else "" for n in range(1, len(layers.attention) + 1))
