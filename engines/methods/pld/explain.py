"""Prompt lookup in words."""

from __future__ import annotations

from engines.methods.shared.explain import Words, option_range, place, suffix
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, listed, ms, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    tree = event.draft
    first = tree.origins[0]
    words = [f"Prompt lookup asks no model. The last {tokens(first.match or 0)}, {suffix(run, event, first.match)}, "
             f"occurred before, in the {place(first)}. What followed there is copied: {listed(tree.pieces)}, "
             f"{tokens(len(tree.tokens))} in {ms(event.draft_seconds)}."]
    if not deep:
        return words
    if len(tree.origins) > 1:
        words.append(f"{counted(len(tree.origins), 'distinct match')} were merged into one tree.")
    return [*words, "The match is counted with all tokens that agree before it; of several matches with enough after "
                    "them to copy the longest whole one is taken, then the latest (Saxena's takes the oldest). A "
                    "copied token has no probability of the drafter's."]


def nothing(run: RunState, event: Round) -> str:
    return f"the last n tokens, {option_range(run, 'min_ngram', 'max_ngram')}, occur nowhere earlier"
