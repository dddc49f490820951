"""EAGLE in words."""

from __future__ import annotations

from engines.core.tree import depths
from engines.methods import note_of
from engines.methods.shared.explain import Words
from engines.report.events import Round
from engines.report.run_state import RunState, best_path
from engines.report.wording import counted, ms, p3, quoted, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    tree, forwards, note = event.draft, event.draft_forwards, note_of(run.started, event)
    path = best_path(tree)
    guesses = " ".join(f"{quoted(tree.pieces[n])} {p3(tree.probs[n] or 0.0)}" for n in path[:5])
    more = " …" if len(path) > 5 else ""
    known = run.prefilled.reads if run.prefilled is not None else None
    reads = known.words if known is not None else "the target's hidden states"
    cost = f"{counted(forwards, 'pass')} of the head" if forwards else "The head"
    shape = tokens(len(path))
    if len(path) < len(tree.tokens):
        levels = counted(max(depths(tree.parents)), "level")
        shape = f"a tree of {counted(len(tree.tokens), 'node')}, {levels} deep, whose likeliest path is"
    words = [f"The head, one layer trained for this target, drafted {shape}: {guesses}{more}. {cost} took "
             f"{ms(event.draft_seconds)}."]
    if not deep:
        return words
    words.append(f"For the first token it reads {reads} of the last row that the target computed, and the root's "
                 "embedding. For each token after that it reads its own output instead, so it grows less sure with "
                 "depth.")
    if (candidates := getattr(note, "candidates", None)) is not None:
        words.append(f"The tree was expanded as EAGLE-2 does, the best {len(tree.tokens)} of {candidates} candidates "
                     "by path probability.")
    return words


def nothing(run: RunState, event: Round) -> str:
    return "the head has no room for this text"
