"""What rank the tokens of a run had among its drafter's guesses."""

from __future__ import annotations

from collections.abc import Iterable

from engines.core.tree import children
from engines.cost.overlap import BEYOND
from engines.report.events import Round


def guess_ranks(rounds: Iterable[Round]) -> list[int | None]:
    """For each token the rounds emitted, its rank among what was drafted at its place, by the drafter's probabilities;
    ``overlap.BEYOND`` where it was not among them, None where nothing was drafted there."""
    out: list[int | None] = []
    for event in rounds:
        draft, below = event.draft, children(event.draft.parents)
        for node, emitted in zip([-1, *event.path], event.emitted):
            guesses = sorted(below.get(node, ()), key=lambda n: -(draft.probs[n] or 0.0))
            tokens = [draft.tokens[n] for n in guesses]
            rank = tokens.index(emitted.token) + 1 if emitted.token in tokens else BEYOND
            out.append(rank if tokens else None)
    return out
