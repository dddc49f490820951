"""ADMG: the target drafts without the sublayers that change its residual stream least in this very context.

Source: Metel et al. 2024, "Draft on the Fly: Adaptive Self-Speculative Decoding using Cosine Similarity", Algorithm 1;
the length of drafts: Zhang et al. 2024, "Draft & Verify". Differences: C_l is the average over all of the
conversation that was read since this engine answers it, at least its last 64 tokens; each rule has a switch (Table 5).
"""

from __future__ import annotations

from dataclasses import replace

from engines.core.outcome import Outcome
from engines.methods.admg.rules import leave_out
from engines.methods.drafter import Resources
from engines.methods.shared.self_draft import SelfDraft
from engines.model.feature_request import COSINES, FeatureRequest


class ADMG(SelfDraft):
    """Chooses what to leave out for each answer, by the prefill's cosines. Raises UsageProblem: the target cannot be
    run without some of its sublayers."""

    features = FeatureRequest(recent=frozenset({COSINES}))

    def __init__(
        self, resources: Resources, *, preset: str, alpha: float, m: int, n: int, cosine: bool, interval: bool,
        **exit: float,
    ) -> None:
        self.rules = alpha, m, n, cosine, interval
        super().__init__(resources, choice=self.rules, **exit)
        self.measures = cosine and n < len(self.sublayers)

    def remark(self) -> str:
        without = leave_out(self._layers(), *self.rules)
        if not self.measures and not any((*without.attention, *without.mlp)):
            return "with these rules nothing is left out, so a drafted token costs as much as one without drafts"
        return super().remark()

    def start(self, outcome: Outcome) -> None:
        attention, mlp, rows = self.model.features.mean_cosines(self.model.length)
        measured = {"attention_cosine": tuple(attention), "mlp_cosine": tuple(mlp), "positions": rows}
        self.layers = leave_out(replace(self._layers(), **measured), *self.rules)
