"""A small draft model guesses, the target checks: a chain, or a dynamic tree expanded as EAGLE-2 expands."""

from __future__ import annotations

from engines.options import Option
from engines.registry import EngineSpec

SPEC = EngineSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model with the same vocabulary drafts a chain or a tree.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2)",
    options=(
        Option("shape", "chain", "One path, or a tree expanded by cumulative probability.", choices=("chain", "tree")),
        Option("num_tokens", 5, "Chain: most tokens drafted a round.", 1, 64),
        Option("confidence", 0.4, "Chain: stop after a token whose draft probability is below this.", 0, 1),
        Option("depth", 5, "Tree: levels expanded.", 1, 16),
        Option("top_k", 4, "Tree: children tried a node, and nodes expanded a level.", 1, 32),
        Option("total_nodes", 16, "Tree: nodes kept for verification, those of the highest path probability.", 1, 256),
    ),
    needs=("draft model",),
)
