"""ADMG: the target drafts without the sublayers that change its residual stream least in this very context.

Source: Metel et al. 2024, "Draft on the Fly: Adaptive Self-Speculative Decoding using Cosine Similarity", Algorithm 1;
the length of drafts: Zhang et al. 2024, "Draft & Verify". Differences: C_l is the average over the whole context also
where its beginning is reused from an earlier turn; each rule has a switch (Table 5).
"""

from __future__ import annotations

from dataclasses import replace

from engines.methods.admg.rules import leave_out
from engines.methods.drafter import Outcome, Resources
from engines.methods.options import Option
from engines.methods.registry import EngineSpec, Presets
from engines.methods.shared.adaptive_exit import EXIT_OPTIONS
from engines.methods.shared.self_draft import SelfDraft
from engines.report.event_types import Layers
from engines.samples import shipped

_PRESETS = {
    # C_l of the target that ships, over the showcase prompts: 0.42 to 0.98 in layers 1 to 3, 0.987 0.990 0.992 0.992 in
    # 4 to 7, 0.994 and more from 8 on. Of alpha, m and n in steps these came near the best: agreement 0.82 at 2/3 of
    # the time.
    "sample": {"alpha": 0.993, "m": 3, "n": 1},
    # The draft model that ships, over the same: 0.53 to 0.62, 0.82 to 0.88, 0.79 to 0.87 in its three layers.
    "sample-draft": {"alpha": 0.8, "m": 4, "n": 0},
    "paper": {"alpha": 0.985, "m": 3, "n": 2},
    "paper-code": {"alpha": 0.985, "m": 4, "n": 3},
}
_BY_MODEL = {"target": "sample", "draft": "sample-draft", "": "paper"}

SPEC = EngineSpec(
    id="admg",
    title="ADMG",
    summary="The target drafts without the sublayers that matter least in this context, and checks with all of them.",
    source="Metel et al. 2024 (ADMG), algorithm 1; Zhang et al. 2024 (Draft & Verify), adaptive exit",
    options=(
        Option("preset", "auto", "Values of alpha, m and n. auto: sample and sample-draft for the models that ship, "
               "else paper. paper: Llama-2 13B; paper-code: CodeLlama 13B.", choices=("auto", *_PRESETS)),
        Option("alpha", 0.985, "Attention is left out where the cosine of the residual stream before and after it, "
               "averaged over the context, is at least this.", 0, 1),
        Option("m", 3, "Attention and MLP of every m-th layer are left out.", 1, 1000),
        Option("n", 2, "The last n layers keep all they have.", 0, 1000),
        Option("cosine", True, "Whether the rule of alpha is on."),
        Option("interval", True, "Whether the rule of m is on."),
        *EXIT_OPTIONS,
    ),
    presets=Presets(_PRESETS, lambda model: _BY_MODEL[shipped(model)]),
)


class ADMG(SelfDraft):
    """Chooses what to leave out for each answer, by the prefill's cosines.

    Raises:
        UsageProblem: the target cannot be run without some of its sublayers.
    """

    wants_cosines = True

    def __init__(
        self, resources: Resources, *, preset: str, alpha: float, m: int, n: int, cosine: bool, interval: bool,
        **exit: float,
    ) -> None:
        super().__init__(resources, **exit)
        self.alpha, self.m, self.n, self.cosine, self.interval = alpha, m, n, cosine, interval

    def remark(self) -> str:
        without = self._rules(self._layers())
        if not (self.cosine and self.n < len(self.sublayers)) and not any((*without.attention, *without.mlp)):
            return "with these rules nothing is left out, so a draft costs as much as the token it stands for"
        return super().remark()

    def start(self, outcome: Outcome) -> None:
        attention, mlp = self.model.cosines()
        measured = {"attention_cosine": tuple(attention), "mlp_cosine": tuple(mlp), "positions": self.model.length}
        self.layers = self._rules(replace(self._layers(), **measured))

    def _rules(self, layers: Layers) -> Layers:
        return leave_out(layers, self.alpha, self.m, self.n, self.cosine, self.interval)


DRAFTER = ADMG
