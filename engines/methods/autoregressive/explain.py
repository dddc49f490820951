"""Autoregressive decoding in words."""

from __future__ import annotations

from engines.methods.shared import explain
from engines.methods.shared.explain import Words, nothing
from engines.report.events import Round
from engines.report.run_state import RunState

__all__ = ["draft", "nothing"]


def draft(run: RunState, event: Round, deep: bool) -> Words:
    if event.draft.tokens:
        return explain.draft(run, event, deep)
    words = ["Nothing is drafted: this is autoregressive decoding, one token per forward pass, the baseline that every "
             "other engine is compared with."]
    return words + ["It runs in the same loop with an empty draft tree, so that a comparison differs in the method "
                    "only."] * deep
