"""REST: what followed the longest suffix of the text in a datastore, as a trie."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, FRACTION, Option
from engines.methods.origins import RETRIEVAL
from engines.methods.shared import explain
from engines.methods.shared.explain import Words, option_range, passage, stores, suffix, top
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RestNote(Note):
    """Attributes:
    match: tokens of the suffix that was found, 0 for none; ``hits``: its occurrences."""

    match: int | None = labelled("match")
    hits: int | None = labelled("hits")


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return explain.draft(run, event, deep)
    words = [f"REST looks up the end of the text. Its last {tokens(found.match)}, {suffix(run, event, found.match)}, "
             f"occur {counted(found.hits, 'time')} in {stores(run)}. {counted(found.used, 'continuation')} were "
             f"merged into a trie; the likeliest first token is {top(event)}."]
    if not deep:
        return words
    return [*words, f"A node's probability is the share of its parent's continuations that pass through it. The "
            f"lookup, binary searches in a suffix array, took {ms(found.seconds)}; no model was asked.",
            *passage(event)]


SPEC = MethodSpec(
    id="rest",
    title="REST",
    summary="Looks up the longest suffix of the text in a datastore and drafts the trie of what followed it there.",
    source="He et al. 2024 (REST), algorithms 1 and 2",
    drafter="engines.methods.rest.drafter:Rest",
    order=50,
    explain=_explain,
    why_empty=lambda run, event: (
        f"the last n tokens, {option_range(run, 'n_min', 'n_max')}, occur nowhere in {stores(run)}"),
    reference="REST (He et al. 2024), section 3.2, algorithms 1 and 2",
    note=RestNote,
    origins=(RETRIEVAL,),
    options=(
        BUDGET,
        Option("c", 64, "Maximum number of nodes of the trie that are drafted.", 1, 256),
        Option("length", 10, "Tokens of a continuation.", 1, 64),
        Option("n_max", 16, "Longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Shortest suffix that counts as a match.", 1, 64),
        Option("select", "trie", "The heaviest nodes of the trie, or 8 random continuations of at most 8 tokens "
               "(Table 3).", choices=("trie", "random")),
        Option("samples", 5000, "Maximum number of continuations read, evenly spaced over the hits.", 1, 100_000),
        FRACTION,
    ),
    needs=("datastore",),
    drafts_from="exact matches in datastores",
    trials=({"n_min": 4}, {"budget": "paper", "c": 16}),
    race_place=4,
)
