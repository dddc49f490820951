"""Token Recycling: what the target had as likely successors of a token when it last saw it, in a tree."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods import note_of
from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import OriginKind
from engines.methods.shared.explain import Words, top
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RecyclingNote(Note):
    """Attributes:
    table: tokens whose successors are known.
    hit_rate: how often the likeliest successor in the table was the one that came, so far; None before any came.
    """

    table: int | None = labelled("tokens in the table")
    hit_rate: float | None = labelled("first successor right")


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    note: RecyclingNote = note_of(run.started, event)
    words = ["Token Recycling asks no model. Its table has the likeliest successors of "
             f"{counted(note.table or 0, 'token')}, as the target had them when it last read each. From the last token "
             f"on they make a tree of {tokens(len(event.draft.tokens))}, the likeliest first {top(event)}."]
    if not deep:
        return words
    if note.hit_rate is not None:
        words.append(f"So far the first successor in the table was the next token {note.hit_rate:.0%} of the time.")
    return [*words, "A node's probability is how often a successor of its rank was right. All rows that the target "
                    "verifies teach the table, those of rejected drafts too: they were computed anyway. Drafting took "
                    f"{ms(event.draft_seconds)}."]


RECYCLED = OriginKind("recycled", "L", "earlier logits", attributes="bold")

SPEC = MethodSpec(
    id="recycling",
    title="Token Recycling",
    summary="Remembers for each token the successors that the target found likeliest, in rejected drafts too, and "
            "drafts a tree of them.",
    source="Luo et al. 2024 (Token Recycling)",
    drafter="engines.methods.recycling.drafter:Recycling",
    order=40,
    explain=_explain,
    why_empty=lambda run, event: "the table has no successors of the last token yet",
    reference="Token Recycling (Luo et al. 2024), section 3",
    note=RecyclingNote,
    origins=(RECYCLED,),
    options=(
        BUDGET,
        Option("k", 8, "Successors remembered for each token.", 1, 8),
        Option("nodes", 32, "Maximum number of nodes drafted; with budget=paper the published tree, cut to these.", 1,
               80, paper=80),
        Option("depth", 6, "Maximum number of tokens on a path.", 1, 6),
    ),
)
