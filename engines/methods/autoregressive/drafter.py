"""Autoregressive decoding: the same loop with nothing drafted. The baseline of every speed-up."""

from __future__ import annotations

from engines.methods.drafter import Drafter
from engines.methods.registry import EngineSpec, GenerateCall

SPEC = EngineSpec(
    id="autoregressive",
    title="Autoregressive",
    summary="One token a forward, nothing drafted: the baseline.",
    source="the target model itself",
    baseline=True,
    race_place=1,
    generate=GenerateCall("generate", "generate(do_sample=False)"),
)


class Autoregressive(Drafter):
    """The empty tree, every round."""


DRAFTER = Autoregressive
