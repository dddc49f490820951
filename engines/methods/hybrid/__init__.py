"""Several sources of drafts: the one with the best score drafts, or a draft head or model where that promises more."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.draft_model import SPEC as DRAFT_SPEC
from engines.methods.eagle import SPEC as EAGLE_SPEC
from engines.methods.notes import labelled
from engines.methods.options import BUDGET, Option
from engines.methods.shared.tree_options import DraftNote
from engines.methods.spec import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridNote(DraftNote):
    """Attributes:
    drafted_by: the source whose draft is verified, None where no source found anything.
    scores: accepted tokens expected of the draft of each source that drafted.
    match, hits, answers, neighbours, similarity: of the source's own note."""

    drafted_by: str | None = labelled("drafted by")
    scores: dict[str, float] | None = None
    match: int | None = labelled("match")
    hits: int | None = labelled("hits")
    answers: int | None = labelled("past answers")
    neighbours: int | None = labelled("neighbours")
    similarity: float | None = labelled("similarity")


SPEC = MethodSpec(
    id="hybrid",
    title="Hybrid",
    summary="Searches this conversation, past answers and the datastores, and drafts from the source with the best "
            "score, or with the draft model or an EAGLE head where that promises more.",
    source="future work of Gritta et al. 2025 (DReSD); score and the turn to a model: Oliaro et al. 2024 "
           "(SuffixDecoding)",
    drafter="engines.methods.hybrid.drafter:Hybrid",
    explanation="engines.methods.hybrid.explain",
    note=HybridNote,
    options=(
        BUDGET,
        Option("model", True, "Whether the draft model, or else an EAGLE head, drafts where it promises more than the "
               "best source."),
        Option("threshold", 2.0, "Draft model or EAGLE head, budget=paper: it drafts where the best score is below "
               "this. With budget=auto tokens per second decide, by acceptance so far and price.", 0, 64),
        Option("c", 64, "Exact match: most nodes of the trie that are drafted.", 1, 256),
        Option("length", 10, "Datastores: tokens of a continuation.", 1, 64),
        Option("n_max", 16, "Exact match: longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Exact match: shortest suffix that counts.", 1, 64),
        Option("drafts", 10, "Dense datastores: nearest neighbours that are drafted.", 1, 64),
    ),
    searches=True,
    default_priority=3,
    helped_by={"model": (*DRAFT_SPEC.needs, *EAGLE_SPEC.needs)},
)
