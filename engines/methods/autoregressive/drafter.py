"""Autoregressive decoding: the same loop with nothing drafted. The baseline of every speed-up."""

from __future__ import annotations

from engines.methods.drafter import Drafter


class Autoregressive(Drafter):
    """The empty tree, every round."""
