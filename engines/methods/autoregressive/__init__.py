"""Autoregressive decoding: nothing drafted, the baseline."""

from __future__ import annotations

from engines.methods.spec import GenerateCall, MethodSpec

SPEC = MethodSpec(
    id="autoregressive",
    title="Autoregressive",
    summary="One token per forward pass, nothing drafted: the baseline.",
    source="the target model itself",
    drafter="engines.methods.drafter:Drafter",
    explanation="engines.methods.autoregressive.explain",
    reference="the baseline of Leviathan et al. 2023, section 3.3",
    baseline=True,
    race_place=1,
    generate=GenerateCall("generate", "generate(do_sample=False)"),
)
