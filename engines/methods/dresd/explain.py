"""DReSD in words."""

from __future__ import annotations

from engines.methods.shared import explain
from engines.methods.shared.explain import Words, passage, stores, top
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms


def draft(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return explain.draft(run, event, deep)
    words = [f"DReSD looks up the target's last hidden state among those of {stores(run)}. "
             f"{counted(found.hits, 'similar state')} lead to the root; what followed the {found.used} nearest is "
             f"merged into a tree. The most similar has {found.scores[0] if found.scores else 0:.3f}; the likeliest "
             f"first token is {top(event)}."]
    if not deep:
        return words
    near = ", ".join(f"{score:.3f}" for score in found.scores[:5])
    return [*words, f"Similarities after z-norm, PCA and scaling to length 1: {near}. A node's probability is the "
            f"share of its parent's drafts through it, the nearest counting most. The lookup took {ms(found.seconds)}.",
            *passage(event)]


def nothing(run: RunState, event: Round) -> str:
    return f"none of the nearest hidden states in {stores(run)} is followed by the root"
