"""Autoregressive decoding: nothing drafted, the baseline."""

from __future__ import annotations

from engines.methods.origins import TARGET
from engines.methods.shared import explain
from engines.methods.shared.explain import Words
from engines.methods.spec import GenerateCall, MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    if event.draft.tokens:
        return explain.draft(run, event, deep)
    words = ["Nothing is drafted: this is autoregressive decoding, one token per forward pass, the baseline that every "
             "other engine is compared with."]
    return words + ["It runs in the same loop with an empty draft tree, so that a comparison differs in the method "
                    "only."] * deep


SPEC = MethodSpec(
    id="autoregressive",
    title="Autoregressive",
    summary="One token per forward pass, nothing drafted: the baseline.",
    source="the target model itself",
    drafter="engines.methods.drafter:Drafter",
    order=10,
    explain=_explain,
    origins=(TARGET,),
    reference="the baseline of Leviathan et al. 2023, section 3.3",
    baseline=True,
    race_place=1,
    generate=GenerateCall("generate", "generate(do_sample=False)"),
)
