"""REST in words."""

from __future__ import annotations

from engines.methods.shared import explain
from engines.methods.shared.explain import Words, option_range, passage, stores, suffix, times, top
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return explain.draft(run, event, deep)
    words = [f"REST looks up the end of the text. Its last {tokens(found.match)}, {suffix(run, event, found.match)}, "
             f"occur {times(found.hits)} in {stores(run)}. {counted(found.used, 'continuation')} were merged into a "
             f"trie; the likeliest first token is {top(event)}."]
    if not deep:
        return words
    return [*words, f"A node's probability is the share of its parent's continuations that pass through it. The "
            f"lookup, binary searches in a suffix array, took {ms(found.seconds)}; no model was asked.",
            *passage(event)]


def nothing(run: RunState, event: Round) -> str:
    return f"the last n tokens, {option_range(run, 'n_min', 'n_max')}, occur nowhere in {stores(run)}"
