"""The hybrid of several sources in words."""

from __future__ import annotations

from engines.methods import known, note_of
from engines.methods.hybrid import HybridNote
from engines.methods.shared.explain import Words, top
from engines.report.events import Round
from engines.report.plain_text import one_line
from engines.report.run_state import RunState
from engines.report.wording import joined, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    note: HybridNote = note_of(run.started, event)
    who = _source(note.drafted_by) if note.drafted_by is not None else "none of them"
    words = [f"Every source drafts, and the one with the best score is verified, {who}: scores {_scores(note)}. It "
             f"drafts {tokens(len(event.draft.tokens))}, the likeliest first {top(event)}."]
    if note.draft_forwards:
        words = [f"No source that copies promised as much as {who}, which drafted {tokens(len(event.draft.tokens))} "
                 f"instead, the likeliest first {top(event)}. The scores were {_scores(note)}."]
    return words + ["A score is the sum of the probabilities of a draft's paths, the number of tokens expected to be "
                    "accepted; with budget=auto they are corrected by how often they were right before."] * deep


def nothing(run: RunState, event: Round) -> str:
    told = _scores(note_of(run.started, event))
    return "no source found anything" + (f" (scores: {told})" if told else "")


def _scores(note: HybridNote) -> str:
    """The score of each source; "" where there is none."""
    return joined(f"{_source(name)} {score:.2f}" for name, score in note.scores.items()) if note.scores else ""


def _source(name: str) -> str:
    spec = known(name)
    return spec.drafts_from if spec is not None and spec.drafts_from else one_line(name)
