"""Drafting with a smaller model: a chain, or a tree expanded as EAGLE-2 expands, or drawn."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.spec import GenerateCall, MethodSpec

TREE_OPTIONS = (
    Option("depth", 8, "Tree: most levels expanded.", 1, 16, paper=5),
    Option("top_k", 4, "Tree: children tried per node, and nodes expanded per level.", 1, 32, paper=10),
    Option("total_nodes", 32, "Tree: most nodes verified, those of highest path probability.", 1, 256, paper=60),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftNote(Note):
    """Attributes:
    candidates: of an expanded tree, how many nodes the drafted ones were chosen from.
    draw: how the nodes of a tree were chosen, where drawn ones were asked for; ``draws`` counts them.
    """

    candidates: int | None = labelled("best of")
    draw: str | None = labelled("draw")
    draws: int | None = labelled("draws")


SPEC = MethodSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model with the same vocabulary drafts a chain or a tree.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2); drawn trees: Miao et "
    "al. 2024 (SpecInfer)",
    drafter="engines.methods.draft_model.drafter:DraftModel",
    explanation="engines.methods.draft_model.explain",
    note=DraftNote,
    options=(
        BUDGET,
        Option("shape", "chain", "One path, or a tree expanded by cumulative probability.", choices=("chain", "tree")),
        Option("draw", "top", "Tree: the likeliest children; or, under the rejection law at T > 0, top_k paths drawn "
               "independently, or top_k distinct draws per level. Under exact the noise draws already.",
               choices=("top", "independent", "distinct")),
        Option("num_tokens", 12, "Chain: most tokens drafted per round.", 1, 64, paper=5),
        Option("confidence", 0.4, "Chain, budget=paper: stop after a token the drafter gives less than this.", 0, 1),
        *TREE_OPTIONS,
    ),
    needs=("draft model",),
    default_priority=2,
    race_place=3,
    variants=({"shape": "tree"},),
    generate=GenerateCall("generate+assistant", "generate(assistant_model=the draft model)", assisted=True),
)
