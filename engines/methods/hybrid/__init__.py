"""Several retrieval sources, this conversation among them: the one with the best score drafts."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.spec import MethodSpec

CONVERSATION = "dynamic"
"""The name of the source that searches this conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HybridNote(Note):
    """Attributes:
    drafted_by: the source whose draft is verified, None where no source found anything.
    scores: accepted tokens expected of each source's draft.
    match, hits, neighbours, similarity: of the source's own note."""

    drafted_by: str | None = labelled("drafted by")
    scores: dict[str, float] | None = None
    match: int | None = labelled("match")
    hits: int | None = labelled("hits")
    neighbours: int | None = labelled("neighbours")
    similarity: float | None = labelled("similarity")


SPEC = MethodSpec(
    id="hybrid",
    title="Hybrid",
    summary="Searches this conversation and the datastores, sparse and dense, and drafts from the source with the "
            "best score.",
    source="future work of Gritta et al. 2025 (DReSD); score: Oliaro et al. 2024 (SuffixDecoding)",
    drafter="engines.methods.hybrid.drafter:Hybrid",
    explanation="engines.methods.hybrid.explain",
    note=HybridNote,
    options=(
        BUDGET,
        Option("c", 64, "Exact match: most nodes of the trie that are drafted.", 1, 256),
        Option("length", 10, "Tokens of a continuation.", 1, 64),
        Option("n_max", 16, "Exact match: longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Exact match: shortest suffix that counts.", 1, 64),
        Option("drafts", 10, "Dense datastores: nearest neighbours that are drafted.", 1, 64),
    ),
    searches=True,
)
