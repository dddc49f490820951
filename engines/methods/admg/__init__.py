"""ADMG: the target drafts without the sublayers that change its residual stream least."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.hub.known_models import known_name
from engines.methods.admg.rules import leave_out
from engines.methods.options import Option
from engines.methods.origins import DRAFT
from engines.methods.shared.self_draft import EXIT_OPTIONS, SelfDraftNote, explain_self_draft
from engines.methods.spec import MethodSpec, Presets
from engines.report.events import Layers

_PRESETS: dict[str, dict[str, Any]] = {  # one named after a known model is that model's
    # C_l of the target that ships, over the showcase prompts: 0.42 to 0.98 in layers 1 to 3, 0.987 0.990 0.992 0.992 in
    # 4 to 7, 0.994 and more from 8 on. Of alpha, m and n in steps these came near the best: agreement 0.82 at 2/3 of
    # the time.
    "sample": {"alpha": 0.993, "m": 3, "n": 1},
    # The draft model that ships, over the same: 0.53 to 0.62, 0.82 to 0.88, 0.79 to 0.87 in its three layers.
    "sample-draft": {"alpha": 0.8, "m": 4, "n": 0},
    # C_l over the own suite: attention 0.58, 0.85 and 0.98 in layers 1 to 3, 0.87 in 25, 0.978 to 0.995 elsewhere. With
    # the published values 15% of the drafts agree, with these 79% (docs/self-speculation.md).
    "smollm2": {"alpha": 0.99, "m": 1000, "n": 2},
    "paper": {"alpha": 0.985, "m": 3, "n": 2},
    "paper-code": {"alpha": 0.985, "m": 4, "n": 3},
}


def _auto(model: str) -> str:
    name = known_name(model)
    return name if name in _PRESETS else "paper"


def _left_out(layers: Layers, options: Mapping[str, Any]) -> Layers:
    return leave_out(layers, *(options[name] for name in ("alpha", "m", "n", "cosine", "interval")))


SPEC = MethodSpec(
    id="admg",
    title="ADMG (ASD)",
    summary="The target drafts without the sublayers that matter least in this context, and verifies with all of them.",
    source="Metel et al. 2024 (ADMG; ASD in its tables), algorithm 1; Zhang et al. 2024 (Draft & Verify), adaptive "
    "exit",
    drafter="engines.methods.admg.drafter:ADMG",
    order=120,
    explain=explain_self_draft,
    reference="ADMG (Metel et al. 2024), sections 3.1 and 3.2, algorithm 1",
    note=SelfDraftNote,
    origins=(DRAFT,),
    self_speculative=True,
    layer_rules=_left_out,
    layers_unknown="nothing is measured yet: an answer measures it; l and enter measure it for the typed prompt",
    options=(
        Option("preset", "auto", "Values of alpha, m and n. auto: the one named after the model (sample, "
               "sample-draft, smollm2), else paper. paper: Llama-2 13B; paper-code: CodeLlama 13B.",
               choices=("auto", *_PRESETS)),
        Option("alpha", 0.985, "Attention is left out where the cosine of the residual stream before and after it, "
               "averaged over the context, is at least this.", 0, 1),
        Option("m", 3, "Attention and MLP of every m-th layer are left out.", 1, 1000),
        Option("n", 2, "The last n layers keep all sublayers.", 0, 1000),
        Option("cosine", True, "Whether the rule of alpha is on."),
        Option("interval", True, "Whether the rule of m is on."),
        *EXIT_OPTIONS,
    ),
    trials=({"num_tokens": 4},),
    presets=Presets(_PRESETS, _auto),
)
