"""Self-speculation in words: ADMG, Draft & Verify."""

from __future__ import annotations

from collections import Counter

from engines.methods import note_of
from engines.methods.shared import explain
from engines.methods.shared.explain import Words, nothing
from engines.report.events import Round
from engines.report.plain_text import one_line
from engines.report.run_state import RunState
from engines.report.wording import counted, joined, listed, ms

__all__ = ["draft", "nothing"]

_RULES = {
    "cosine": "their cosine (changes too little)", "interval": "the interval (every m-th)",
    "both": "cosine and interval", "search": "a fixed set (layers=)",
}


def draft(run: RunState, event: Round, deep: bool) -> Words:
    layers = run.prefilled.layers if run.prefilled is not None else None
    if layers is None:
        return explain.draft(run, event, deep)
    less = sum(rule != "" for rule in layers.attention), sum(rule != "" for rule in layers.mlp)
    forwards = event.draft_forwards
    cost = f"{counted(forwards, 'such forward pass')} took" if forwards else "It took"
    does = (f"it leaves out {less[0]} attention and {less[1]} MLP sublayers, which makes it faster and less accurate"
            if any(less) else "none is left out, so a pass for the draft costs what one of the target costs")
    words = [f"The target drafts for itself: of its {counted(len(layers.attention), 'layer')} {does}. It wrote "
             f"{listed(event.draft.pieces)}. {cost} {ms(event.draft_seconds)}."]
    if not deep:
        return words
    by = Counter(rule for rule in (*layers.attention, *layers.mlp) if rule)
    if by:
        why = joined(f"{counted(count, 'sublayer')} by {_RULES.get(rule, rule)}" for rule, count in by.items())
        words.append(f"Left out: {why}.")
    note = note_of(run.started, event)
    if (bound := getattr(note, "exit_threshold", None)) is not None:
        words.append(f"It goes on while it is at least as sure as γ = {bound:g}, a threshold that follows how much was "
                     f"accepted before; here it stopped by: {one_line(note.stopped or '?', 40)}.")
    if layers.alpha is not None:
        cosines = [c for c in layers.attention_cosine if c is not None]
        words.append(f"C_l is the cosine of the residual stream before and after a sublayer, over {layers.positions} "
                     f"positions of the context: from {min(cosines, default=0):.3f} to {max(cosines, default=0):.3f} "
                     f"here; attention from α = {layers.alpha} on is left out"
                     + (f", but not in the last {counted(layers.n, 'layer')}." if layers.n else "."))
    return words
