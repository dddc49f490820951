"""Autoregressive decoding: the same loop with nothing drafted. The baseline of every speed-up."""

from __future__ import annotations

from engines.methods.drafter import Drafter
from engines.methods.registry import EngineSpec

SPEC = EngineSpec(
    id="autoregressive",
    title="Autoregressive",
    summary="One token a forward, nothing drafted: the baseline.",
    source="the target model itself",
)


class Autoregressive(Drafter):
    """The empty tree, every round."""


DRAFTER = Autoregressive
