"""Options of the methods that draft with a predictor, and what they remark."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.shared.stop_rules import NONE, stop_option

TREE_OPTIONS = (
    Option("depth", 8, "Tree: maximum number of levels. EAGLE-2's depth, 5, counts the forward passes after the first.",
           1, 16, paper=6),
    Option("top_k", 4, "Tree: children tried per node, and nodes expanded per level.", 1, 32, paper=10),
    Option("total_nodes", 32, "Tree: maximum number of nodes verified, the likeliest paths. EAGLE-2's count, 60, has "
           "the root in it.", 1, 256, paper=59),
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


def draft_options(
    num_tokens: int, confidence: float, tree: tuple[Option, ...], shape: str = "chain"
) -> tuple[Option, ...]:
    """The options with these defaults."""
    return (
        BUDGET,
        Option("shape", shape, "One path, or a tree expanded by cumulative probability.", choices=("chain", "tree")),
        Option("draw", "top", "Tree: the likeliest children; or, under the rejection law at T > 0, top_k paths drawn "
               "independently, or top_k distinct draws per level. Under exact the noise draws already.",
               choices=("top", "independent", "distinct")),
        Option("num_tokens", num_tokens, "Chain: maximum number of tokens drafted per round.", 1, 64, paper=5),
        stop_option(NONE, "confidence"),
        Option("confidence", confidence, "Chain: it ends with the first token at which the drafter is less sure than "
               "this; the option stop says how that is measured.", 0, 1),
        *tree,
    )
