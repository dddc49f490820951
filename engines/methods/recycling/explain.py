"""Token Recycling in words."""

from __future__ import annotations

from engines.methods import note_of
from engines.methods.recycling import RecyclingNote
from engines.methods.shared.explain import Words, top
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    note: RecyclingNote = note_of(run.started, event)
    words = ["Token Recycling asks no model. Its table has the likeliest successors of "
             f"{counted(note.table or 0, 'token')}, as the target had them when it last read each. From the last token "
             f"on they make a tree of {tokens(len(event.draft.tokens))}, the likeliest first {top(event)}."]
    if not deep:
        return words
    if note.hit_rate is not None:
        words.append(f"So far the first successor in the table was the one that came {note.hit_rate:.0%} of the time.")
    return [*words, "A node's probability is how often a successor of its rank was right. All rows that the target "
                    "verifies teach the table, those of rejected drafts too: they were computed anyway. Drafting took "
                    f"{ms(event.draft_seconds)}."]


def nothing(run: RunState, event: Round) -> str:
    return "the target has read the last token in no row that it was asked about, so its successors are not known"
