"""Drafting with a smaller model in words."""

from __future__ import annotations

from math import prod

from engines.core.tree import depths
from engines.laws import spec_of
from engines.methods import note_of
from engines.methods.shared.explain import Words
from engines.report.events import Round
from engines.report.run_state import RunState, best_path
from engines.report.wording import counted, ms, p3, quoted, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    tree, forwards = event.draft, event.draft_forwards
    path = best_path(tree)
    guesses = " ".join(f"{quoted(tree.pieces[n])} {p3(tree.probs[n] or 0.0)}" for n in path[:5])
    cost = f"{counted(forwards, 'forward pass')} of it" if forwards else "its forward passes"
    started = run.started
    noisy = spec_of(started.law, started.temperature).shares_noise
    belief = "probability of each, the noise included" if noisy else "own probability q of each"
    if len(path) == len(tree.tokens):
        words = [f"The draft model, small and cheap, drafted {tokens(len(path))}, with its {belief}: "
                 f"{guesses}{' …' if len(path) > 5 else ''}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    else:
        words = [f"The draft model grew a tree of {counted(len(tree.tokens), 'node')}, "
                 f"{counted(max(depths(tree.parents)), 'level')} deep; its likeliest path: {guesses}"
                 f"{' …' if len(path) > 5 else ''}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    if not deep:
        return words
    own = prod(tree.probs[n] or 0.0 for n in path)
    words.append(f"By its own probabilities the whole path is right with probability {p3(own)}. "
                 + _how_chosen(run))
    if (candidates := getattr(note_of(started, event), "candidates", None)) is not None:
        words.append(f"The tree was expanded as EAGLE-2 does, the best {len(tree.tokens)} of {candidates} candidates "
                     "by path probability.")
    return words


def nothing(run: RunState, event: Round) -> str:
    return "the draft model has no room for this text, or cannot read it"


def _how_chosen(run: RunState) -> str:
    started = run.started
    if started.temperature == 0:
        return "At temperature 0 it writes its likeliest tokens."
    law = spec_of(started.law)
    if law.shares_noise:
        return ("It adds the same noise as the target will (coupled sampling): so where the distributions agree, "
                "the tokens agree too.")
    drawn = started.options.get("shape") != "tree" or started.options.get("draw") != "top"
    if law.lossless and drawn:
        return "Its tokens are drawn from q, so that the law can correct for the difference between q and p."
    return "It writes its likeliest tokens, point masses to the law."
