"""Drafting with a predictor that costs time for each token or level, a model or a head: a chain, a tree expanded as
EAGLE-2 expands, or a drawn one, as deep as the next token or level is expected to pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from engines.core.outcome import DraftLimits
from engines.core.tree import DraftTree
from engines.cost.budget import LEVELS, NODES_A_LEVEL, BudgetChoice, kind_of
from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods.drafter import Drafter, Resources
from engines.methods.origins import DRAFT
from engines.methods.shared.grown_trees import DrawnTree, ExpandedTree, TreeDraft, after_nodes
from engines.methods.shared.predictor import Chain, Predictor
from engines.methods.shared.tree_options import DraftNote
from engines.report.events import Origin

if TYPE_CHECKING:
    from engines.heads.draft_head import DraftHead
    from engines.model.causal_model import CausalModel

_ORIGIN = Origin(DRAFT.name)
CHAIN = kind_of(_ORIGIN)


class PredictorDrafter(Drafter):
    """Grows drafts on a predictor.

    Args:
        predictor: gives the logits.
        drafting: what it steps; ``price``: t(n) of that, None where it is not known.
        options: those of ``tree_options.draft_options``.
    """

    expected: float | None = None
    """The share of its first tokens that is expected to be accepted, where that is known; then it is tried beside
    copies before they have paid for a try."""

    def __init__(
        self, resources: Resources, predictor: Predictor, drafting: CausalModel | DraftHead, price: CostCurve | None,
        *, budget: str, shape: str, draw: str, num_tokens: int, stop: str, confidence: float, depth: int, top_k: int,
        total_nodes: int,
    ) -> None:
        super().__init__(resources, budget)
        self.law, self.ends = resources.law, resources.end_tokens
        self.predictor, self.drafting, self.price = predictor, drafting, price
        self.shape = shape if resources.branches and drafting.trees else "chain"
        self.draw, self.num_tokens, self.stop, self.confidence = draw, num_tokens, stop, confidence
        self.depth, self.top_k, self.total_nodes = depth, top_k, total_nodes
        self.draws_chains = self.shape == "chain"

    def remark(self) -> str:
        budget, price = self.resources.budget, self.price
        if budget is None or price is None:
            return ""
        tree = self.shape == "tree"
        each = price.at(self.top_k if tree else 1)
        best = SpeedupModel(budget.price, price.at(1), each, most=self.depth if tree else self.num_tokens).at_best
        if best > 1:
            return ""
        share = price.at(1) / budget.price.at(1)
        return (
            f"drafting cannot be faster here: a forward pass of {self.drafting.name} takes {share:.0%} of the time of"
            f" the target's, so even with every token accepted a {self.shape} would reach {best:.2f}x of autoregressive"
            f" decoding"
        )

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        drawn = self.draw != "top" and self.law.draws
        if self.shape == "tree" and not drawn:
            grown = self.grow(context, limits)
            return self.worth_verifying(grown.tree, grown.seconds) if grown.seconds else grown.tree
        depth = self._most(context, limits)
        if depth < 1:
            return DraftTree()
        if self.shape == "tree":
            return self._drawn_tree(context, min(depth, self.depth), min(self.total_nodes, limits.nodes))
        return self._chain(context, min(depth, self.num_tokens, limits.nodes))

    def grow(self, context: Sequence[int], limits: DraftLimits, favourites: int = 0) -> TreeDraft:
        """The expanded tree before a budget chooses from it; ``favourites``: how many first tokens are wanted."""
        most = min(self._most(context, limits), self.depth)
        tree = ExpandedTree(self.predictor, self.law, _ORIGIN, context, self.ends, self.top_k)
        tree.grow(lambda reach: self._goes_on(reach, most), favourites)
        best = tree.best(min(self.total_nodes, limits.nodes))
        best.note = DraftNote(draft_forwards=tree.levels, candidates=len(tree.tree), draw=self._not_drawn())
        price = self.price
        seconds = price.at(1) + (tree.levels - 1) * price.at(self.top_k) if price is not None and tree.levels else 0.0
        return TreeDraft(best, seconds, tree.favourites, tree.ranks)

    def rate(self, context: Sequence[int], limits: DraftLimits) -> float | None:
        """Tokens a second expected of a chain drafted now, by what became of earlier ones; None where no budget or no
        price tells, 0 where it cannot read the context. The time to read tokens that it has missed is not
        counted: it reads each token once, whoever drafted it."""
        price, most = self.price, min(self._most(context, limits), self.num_tokens)
        if self.budget is None or price is None:
            return None if most > 0 else 0.0
        return self.budget.chain_rate(CHAIN, most, lambda n: n * price.at(1)) if most > 0 else 0.0

    def _most(self, context: Sequence[int], limits: DraftLimits) -> int:
        """How many tokens deep it can draft: it has positions of its own, perhaps fewer than the target."""
        return min(limits.depth, self.predictor.room(context))

    def unread(self, context: Sequence[int]) -> int:
        """About how many rows it reads before its first guess."""
        return 1

    def _goes_on(self, values: list[float], most: int) -> bool:
        """Whether another level of the tree is worth drafting; ``values`` are the chances of those there are."""
        price = self.price
        if self.budget is None or price is None:
            return len(values) < most
        level = price.at(self.top_k)
        return self.budget.more(LEVELS, values, most, lambda n: price.at(1) + (n - 1) * level, NODES_A_LEVEL)

    def _chain_goes_on(self, context: Sequence[int], most: int) -> Callable[[list[float]], bool]:
        """Whether another token of a chain is worth drafting, by the chances of those there are."""
        budget, price = self.budget, self.price
        if budget is None or price is None:
            return lambda values: len(values) < most
        each = price.at(1)
        missed = price.at(self.unread(context)) - each
        return lambda values: budget.more(CHAIN, values, most, lambda n: n * each, once=missed)

    def _chain(self, context: Sequence[int], most: int) -> DraftTree:
        """Tokens as long as the next one is expected to pay, or until ``stop`` says that the drafter is less sure than
        ``confidence``."""
        chain = Chain(self.predictor, self.law, context, self.stop)
        values: list[float] = []
        goes_on = self._chain_goes_on(context, most)
        while goes_on(values):
            token, prob = chain.grow()
            chance = self.budget.belief(CHAIN, len(chain), prob) if self.budget else 1.0
            values.append((values[-1] if values else 1.0) * chance)
            if token in self.ends or chain.sureness < self.confidence:
                break
        tree = chain.tree(_ORIGIN, DraftNote(draft_forwards=len(chain)))
        if self.budget is not None:
            tree.budget = BudgetChoice(len(chain), None, round(1 + sum(values), 2))
        return tree

    def _drawn_tree(self, context: Sequence[int], most: int, nodes: int) -> DraftTree:
        """The same level by level with drawn nodes, all of which are verified."""
        grown = DrawnTree(self.law, _ORIGIN, self.predictor, self.top_k, nodes, distinct=self.draw == "distinct")
        rows: dict[int, int] = {}
        beam, levels = [-1], 0
        while beam and len(grown.tree) < nodes and self._goes_on(self._reached(levels), most):
            found = grown.level(beam, after_nodes(self.predictor, context, grown.tree, beam, rows))
            beam = [i for i in found if grown.tree.tokens[i] not in self.ends]
            levels += 1
        self.predictor.drop()
        grown.tree.note = DraftNote(draft_forwards=levels, draw=self.draw, draws=grown.count)
        return grown.tree

    def _reached(self, levels: int) -> list[float]:
        """The chance that a text comes past each of so many levels, by what has been seen. The drafter's probability of
        what it drew says little about that: a draw is as good as its distribution."""
        if self.budget is None:
            return [1.0] * levels
        return list(accumulate(self.budget.acceptance.chances(LEVELS, copied=False)[:levels], mul))

    def _not_drawn(self) -> str | None:
        """Why a tree was not drawn though the option asks for it."""
        if self.draw == "top":
            return None
        by_noise = self.law.noise(0) is not None
        return "by the law's noise" if by_noise else "top: nothing to draw"
