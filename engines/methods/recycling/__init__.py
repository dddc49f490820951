"""Token Recycling: what the target had as likely successors of a token when it last saw it, in a tree."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.spec import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RecyclingNote(Note):
    """Attributes:
    table: tokens whose successors are known.
    hit_rate: how often the likeliest successor in the table was the one that came, so far; None before any came.
    """

    table: int | None = labelled("tokens in the table")
    hit_rate: float | None = labelled("first successor right")


SPEC = MethodSpec(
    id="recycling",
    title="Token Recycling",
    summary="Remembers for each token the successors that the target found likeliest, in rejected drafts too, and "
            "drafts a tree of them.",
    source="Luo et al. 2024 (Token Recycling)",
    drafter="engines.methods.recycling.drafter:Recycling",
    explanation="engines.methods.recycling.explain",
    reference="Token Recycling (Luo et al. 2024), section 3",
    note=RecyclingNote,
    options=(
        BUDGET,
        Option("k", 8, "Successors remembered for each token.", 1, 8),
        Option("nodes", 32, "Most nodes drafted; with budget=paper the published tree, cut to these.", 1, 80, paper=80),
        Option("depth", 6, "Most tokens on a path.", 1, 6),
    ),
)
