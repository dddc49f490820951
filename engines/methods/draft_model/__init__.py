"""Drafting with a smaller model: a chain, or a tree expanded as EAGLE-2 expands, or drawn."""

from __future__ import annotations

from engines.methods.shared.tree_options import TREE_OPTIONS, DraftNote, draft_options
from engines.methods.spec import GenerateCall, MethodSpec

__all__ = ["SPEC", "TREE_OPTIONS", "DraftNote"]

SPEC = MethodSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model with the same vocabulary drafts a chain or a tree.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2); drawn trees: Miao et "
    "al. 2024 (SpecInfer)",
    drafter="engines.methods.draft_model.drafter:DraftModel",
    explanation="engines.methods.draft_model.explain",
    note=DraftNote,
    options=draft_options(num_tokens=12, confidence=0.4, tree=TREE_OPTIONS),
    needs=("draft model",),
    default_priority=2,
    race_place=3,
    variants=({"shape": "tree"},),
    generate=GenerateCall("generate+assistant", "generate(assistant_model=the draft model)", assisted=True),
)
