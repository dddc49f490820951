"""Medusa in words."""

from __future__ import annotations

from engines.core.tree import depths
from engines.methods import note_of
from engines.methods.medusa import MedusaNote
from engines.methods.shared.explain import Words, top
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    note: MedusaNote = note_of(run.started, event)
    levels = max(depths(event.draft.parents))
    asked = counted(note.heads or levels, "head")
    words = [f"{asked}, trained for this target, guessed side by side, each for one of the next places. Their "
             f"candidates make a tree of {tokens(len(event.draft.tokens))}, {counted(levels, 'level')} deep, the "
             f"likeliest first {top(event)}. One pass of the heads took {ms(event.draft_seconds)}."]
    if not deep:
        return words
    return [*words, "Every head reads the last hidden state of the row from which the root was "
                    "chosen, and none knows what the others guess: a path's probability is the product of theirs, and "
                    "deep paths are less sure than they say."]


def nothing(run: RunState, event: Round) -> str:
    return "drafting does not pay now, or the answer has no room for a guess"
