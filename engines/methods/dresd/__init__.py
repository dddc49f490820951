"""DReSD: what followed the hidden states most like the present one in a datastore."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, FRACTION, Option
from engines.methods.origins import RETRIEVAL
from engines.methods.shared import explain
from engines.methods.shared.explain import Words, passage, stores, top
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms


@dataclass(frozen=True, slots=True, kw_only=True)
class DresdNote(Note):
    """Attributes:
    neighbours: hidden states that were near; ``similarity`` of the nearest."""

    neighbours: int | None = labelled("neighbours")
    similarity: float | None = labelled("similarity")


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    found = event.retrieval
    if found is None:
        return explain.draft(run, event, deep)
    words = [f"DReSD looks up the target's last hidden state among those of {stores(run)}. "
             f"{counted(found.hits, 'similar state')} are followed by the root; what followed the {found.used} nearest "
             f"is merged into a tree. The most similar has {found.scores[0] if found.scores else 0:.3f}; the likeliest "
             f"first token is {top(event)}."]
    if not deep:
        return words
    near = ", ".join(f"{score:.3f}" for score in found.scores[:5])
    return [*words, f"Similarities after z-norm, PCA and scaling to length 1: {near}. A node's probability is the "
            f"share of its parent's drafts through it, the nearest counting most. The lookup took {ms(found.seconds)}.",
            *passage(event)]


SPEC = MethodSpec(
    id="dresd",
    title="DReSD",
    summary="Finds hidden states in a datastore nearest to the target's last one and drafts what followed them.",
    source="Gritta et al. 2025 (DReSD), algorithm 1",
    drafter="engines.methods.dresd.drafter:DReSD",
    order=60,
    explain=_explain,
    why_empty=lambda run, event: f"none of the nearest hidden states in {stores(run)} is followed by the root",
    reference="DReSD (Gritta et al. 2025), sections 3.1 to 3.5, algorithm 1",
    note=DresdNote,
    origins=(RETRIEVAL,),
    options=(
        BUDGET,
        Option("drafts", 10, "Number of nearest neighbours to draft from.", 1, 64),
        Option("length", 10, "Tokens drafted from each neighbour.", 1, 64),
        Option("distinct", True, "Neighbours with the same continuation count as one, and the next nearest replace the "
               "repeats. The paper's drafts may repeat each other.", paper=False),
        Option("neighbours", 0, "Nearest keys that are compared; those whose text continued with another token are "
               "dropped. 0: as many as the index scores, 100 to 150; four times as many if few are left.",
               0, 4096, paper=50),
        FRACTION,
    ),
    needs=("dense datastore",),
    drafts_from="similar hidden states",
    trials=({"drafts": 4},),
)
