"""Medusa heads guess the next tokens side by side, the target checks a tree of them.

Source: Cai et al. 2024, "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads", and its
published tree "mc_sim_7b_63". Without it, the tree has the paths that the heads find likeliest, as if they were
independent of each other, and the price decides how many of its nodes are verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.budget import LEVELS, NODES_A_LEVEL
from engines.errors import UsageProblem
from engines.heads.head_config import MEDUSA_HEADS
from engines.methods.drafter import Drafter, Resources, chosen_row
from engines.methods.medusa import MedusaNote
from engines.methods.origins import DRAFT
from engines.methods.shared.predictor import token_of
from engines.methods.shared.ranked_trees import RankedToken, best_first, of_ranks
from engines.model.feature_request import LAST
from engines.report.events import Origin

if TYPE_CHECKING:
    import torch

PUBLISHED = tuple(path for paths in (
    "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 003 40 21 004 005 0000",
    "011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 101 021 90 060 0001 16 070",
) for path in paths.split())
"""The published tree: for each node the ranks on its path, of the first head, the second and so on."""


class Medusa(Drafter):
    """Drafts with heads that read the hidden state of the row from which the root was chosen."""

    def __init__(self, resources: Resources, *, budget: str, heads: int, top_k: int, nodes: int) -> None:
        super().__init__(resources, budget)
        if MEDUSA_HEADS not in resources.heads:
            raise UsageProblem(f"the medusa engine needs {MEDUSA_HEADS}, and none are loaded",
                               "give --head a file of them that was trained for this model, or choose another engine")
        self.medusa: Any = resources.heads[MEDUSA_HEADS]
        self.price = resources.head_prices.get(MEDUSA_HEADS)
        self.features, self.reads = self.medusa.request, self.medusa.reads
        self.heads, self.top_k, self.nodes = min(heads, self.medusa.config.heads), top_k, nodes
        self._state: torch.Tensor | None = None

    def start(self, outcome: Outcome) -> None:
        self.follow(outcome)

    def follow(self, outcome: Outcome) -> None:
        """Keep the hidden state of the row that the last emitted token was chosen from."""
        self._state = self.resources.target.features.latest(LAST)[chosen_row(outcome)].clone()

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        depth = min(self.heads, limits.depth)
        seconds = self.price.at(depth) if self.price is not None else 0.0
        if depth < 1 or not self._pays(depth, seconds):
            return DraftTree()
        levels = self._candidates(len(context), depth)

        def below(level: int) -> list[RankedToken]:
            return levels[level] if level < depth else []

        tree = DraftTree(origins=[Origin(DRAFT.name)], note=MedusaNote(draft_forwards=1, heads=depth))
        found = best_first(0, below) if self.budget else of_ranks(PUBLISHED, 0, below)
        for token, parent, chance in islice(found, min(self.nodes, limits.nodes)):
            tree.add(token, parent, chance, 0)
        return self.worth_verifying(tree, seconds)

    def _pays(self, depth: int, seconds: float) -> bool:
        """Whether asking the heads is expected to pay: all of them cost one pass."""
        if self.budget is None or self.price is None:
            return True
        return self.budget.more(LEVELS, [], depth, lambda n: seconds, NODES_A_LEVEL)

    def _candidates(self, position: int, depth: int) -> list[list[RankedToken]]:
        """For each head its likeliest tokens, the first the one after the root; nothing follows an end token."""
        law, ends = self.resources.law, self.resources.end_tokens
        found = []
        for level, row in enumerate(self.medusa.logits(self._state, depth)):
            probs = law.scores(row[None], position + level, self.medusa.drafts)[0].softmax(-1)
            chances, best = probs.topk(min(self.top_k, len(probs)))
            tokens = [token_of(self.medusa.drafts, index) for index in best.tolist()]
            found.append([
                RankedToken(token, chance, depth if token in ends else level + 1)
                for token, chance in zip(tokens, chances.tolist()) if chance > 0
            ])
        return found
