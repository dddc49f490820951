"""Suffix decoding in words."""

from __future__ import annotations

from engines.methods import note_of
from engines.methods.shared.explain import Words, place, suffix, times, top
from engines.methods.suffix import SuffixNote
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    note: SuffixNote = note_of(run.started, event)
    first = event.draft.origins[0]
    words = [f"Suffix decoding asks no model. The end of the text, its last {tokens(note.match or 0)}, "
             f"{suffix(run, event, note.match)}, occurred {times(note.hits or 0)} before, in the {place(first)}. It "
             f"drafts {tokens(len(event.draft.tokens))} of what followed, the likeliest first {top(event)}."]
    if not deep:
        return words
    if note.answers is not None:
        words.append(f"Searched were this conversation and {counted(note.answers, 'past answer')}.")
    score = f": {note.score:.2f} here" if note.score is not None else ""
    return [*words, "A token's probability is its share of what followed these occurrences. Each length of match, in "
                    "this conversation and in past answers, gives a draft; the score of one is the number of tokens "
                    f"expected to be accepted, the sum over its paths, and the best is taken{score}. It took "
                    f"{ms(event.draft_seconds)}."]


def nothing(run: RunState, event: Round) -> str:
    return "the last token of the text occurs nowhere before, neither in this conversation nor in past answers"
