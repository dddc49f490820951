"""A small draft model guesses, the target checks: a chain, or a dynamic tree expanded as EAGLE-2 expands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING

from engines.core.tree import DraftTree
from engines.cost.budget import LEVELS, kind_of
from engines.cost.curve import best_case
from engines.errors import UsageProblem
from engines.methods.drafter import Drafter, DraftLimits, Outcome, Resources, TreeDraft
from engines.methods.options import BUDGET, Option
from engines.methods.registry import EngineSpec, GenerateCall
from engines.methods.shared.chain import Chain, catch_up
from engines.methods.shared.drawn_tree import DrawnTree
from engines.report.events import Origin

if TYPE_CHECKING:
    import torch

_ORIGIN = Origin("draft")
CHAIN = kind_of(_ORIGIN)
_NODES_A_LEVEL = 2  # of a tree, verified: a guess made before the tree is there

SPEC = EngineSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model with the same vocabulary drafts a chain or a tree.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2); drawn trees: Miao et "
    "al. 2024 (SpecInfer)",
    options=(
        BUDGET,
        Option("shape", "chain", "One path, or a tree expanded by cumulative probability.", choices=("chain", "tree")),
        Option("draw", "top", "Tree: the likeliest children; or, under the rejection law at T > 0, top_k paths drawn "
               "independently, or top_k distinct draws a level. Under exact the noise draws already.",
               choices=("top", "independent", "distinct")),
        Option("num_tokens", 12, "Chain: most tokens drafted a round.", 1, 64, paper=5),
        Option("confidence", 0.4, "Chain, budget=paper: stop after a token the drafter gives less than this.", 0, 1),
        Option("depth", 8, "Tree: most levels expanded.", 1, 16, paper=5),
        Option("top_k", 4, "Tree: children tried a node, and nodes expanded a level.", 1, 32, paper=10),
        Option("total_nodes", 32, "Tree: most nodes verified, those of highest path probability.", 1, 256, paper=60),
    ),
    needs=("draft model",),
    race_place=3,
    variants=({"shape": "tree"},),
    generate=GenerateCall("generate+assistant", "generate(assistant_model=the draft model)", assisted=True),
)


class DraftModel(Drafter):
    """Drafts with a second causal model that keeps its own KV buffer across rounds and turns."""

    def __init__(
        self, resources: Resources, *, budget: str, shape: str, draw: str, num_tokens: int, confidence: float,
        depth: int, top_k: int, total_nodes: int,
    ) -> None:
        super().__init__(resources, budget)
        if resources.draft_model is None:
            raise UsageProblem(
                "the draft engine needs a draft model, and none is loaded",
                "give --draft-model a model with the target's vocabulary, or choose another engine",
            )
        self.model, self.law, self.ends = resources.draft_model, resources.law, resources.end_tokens
        self.shape = shape if resources.branches and self.model.trees else "chain"
        self.draw, self.num_tokens, self.confidence = draw, num_tokens, confidence
        self.depth, self.top_k, self.total_nodes = depth, top_k, total_nodes
        self._checked, self._blind = 0, False

    def remark(self) -> str:
        budget, price = self.resources.budget, self.resources.draft_price
        if budget is None or price is None:
            return ""
        tree = self.shape == "tree"
        each = price.at(self.top_k if tree else 1)
        best = best_case(budget.price, self.depth if tree else self.num_tokens, lambda n: price.at(1) + (n - 1) * each)
        if best > 1:
            return ""
        share = price.at(1) / budget.price.at(1)
        return (
            f"drafting cannot pay here: a forward of {self.model.name} takes {share:.0%} of the target's, so even with"
            f" every token accepted a {self.shape} would reach x{best:.2f} of autoregressive decoding"
        )

    def start(self, outcome: Outcome) -> None:
        """Prefill the prompt here, so that its time counts as prefill and not as drafting."""
        self._checked, self._blind = 0, False
        context = outcome.context
        if len(context) < self.model.context_limit and self._readable(context):
            self.model.extend(context[self.model.rewind(context) : -1], self.resources.cancelled)

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        drawn = self.draw != "top" and self.law.draws
        if self.shape == "tree" and not drawn:
            grown = self.grow(context, room)
            return self.budget.prune(grown.tree, grown.seconds) if self.budget and grown.seconds else grown.tree
        depth = self._most(context, room)
        if depth < 1:
            return DraftTree()
        if self.shape == "tree":
            return self._drawn_tree(context, min(depth, self.depth), min(self.total_nodes, room.nodes))
        return self._chain(context, min(depth, self.num_tokens, room.nodes))

    def _most(self, context: Sequence[int], room: DraftLimits) -> int:
        """How many tokens deep it can draft: it has positions of its own, perhaps fewer than the target."""
        return min(room.depth, self.model.context_limit - len(context)) if self._readable(context) else 0

    def _goes_on(self, values: list[float], most: int) -> bool:
        """Whether another token of the chain, or another level of the tree, is worth drafting; ``values`` are the
        chances of those there are."""
        price = self.resources.draft_price
        if self.budget is None or price is None:
            return len(values) < most
        if self.shape == "chain":
            return self.budget.more(CHAIN, values, most, lambda n: n * price.at(1))
        level = price.at(self.top_k)
        return self.budget.more(LEVELS, values, most, lambda n: price.at(1) + (n - 1) * level, _NODES_A_LEVEL)

    def _readable(self, context: Sequence[int]) -> bool:
        """Whether the draft model has an embedding for every token: the target's may be padded further, and at a high
        temperature it can emit the padding."""
        if self.model.vocab_size < self.resources.vocab_size and not self._blind:
            self._blind = max(context[self._checked :], default=0) >= self.model.vocab_size
            self._checked = len(context)
        return not self._blind

    def _catch_up(self, context: Sequence[int]) -> torch.Tensor:
        """The logits after the context's last token."""
        return self._fit(catch_up(self.model, context))

    def _fit(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits in the target's width: models of one vocabulary may pad their embeddings differently."""
        width = self.resources.vocab_size
        if logits.shape[-1] > width:
            return logits[..., :width]
        return logits if logits.shape[-1] == width else _pad(logits, width)

    def _chain(self, context: Sequence[int], most: int) -> DraftTree:
        """Tokens as long as the next one is expected to pay (with ``budget=paper``: until one is below ``confidence``).
        The token that says stop is drafted too: leaving it out would make what is drafted depend on the dice, and the
        rejection law would no longer be exact."""
        chain = Chain(self.law, len(context))
        values: list[float] = []
        while self._goes_on(values, most):
            logits = self._fit(self.model.extend(chain.tokens[-1:])) if len(chain) else self._catch_up(context)
            token, prob = chain.add(logits)
            chance = self.budget.belief(CHAIN, len(chain), prob) if self.budget else 1.0
            values.append((values[-1] if values else 1.0) * chance)
            if token in self.ends or (self.budget is None and prob < self.confidence):
                break
        note = {"draft forwards": len(chain)}
        if self.budget is not None:
            note |= {"budget": len(chain), "expected": round(1 + sum(values), 2)}
        return chain.tree(_ORIGIN, note)

    def grow(self, context: Sequence[int], room: DraftLimits, favourites: int = 0) -> TreeDraft:
        """EAGLE-2's expansion: level by level the ``top_k`` nodes of highest path probability get ``top_k`` children;
        of all nodes the ``nodes`` best are kept. A path's probability never exceeds its parent's, so with ties going
        to the earlier node the kept set is closed under parents. ``favourites``: how many of them are wanted."""
        tree, scores, rows = DraftTree(origins=[_ORIGIN]), [], {}
        first: tuple[int, ...] = ()
        most = min(self._most(context, room), self.depth)
        reach: list[float] = []
        beam, level = [-1], 0
        while beam and self._goes_on(reach, most):
            logits = self._after(context, tree, beam, rows)
            if not level and favourites:
                first = self._likeliest(logits, favourites, len(context))
            found = self._children(tree, scores, beam, logits, len(context) + level)
            level += 1
            reach.append(min(1.0, sum(math.exp(scores[i]) for i in found)))
            open_nodes = [i for i in found if tree.tokens[i] not in self.ends]
            beam = sorted(sorted(open_nodes, key=lambda i: -scores[i])[: self.top_k])
        self.model.drop()
        keep = sorted(sorted(range(len(tree)), key=lambda i: -scores[i])[: min(self.total_nodes, room.nodes)])
        kept = tree.select(keep)
        kept.note = {"draft forwards": level, "best of": len(tree)} | self._not_drawn()
        price = self.resources.draft_price
        seconds = price.at(1) + (level - 1) * price.at(self.top_k) if price is not None and level else 0.0
        return TreeDraft(kept, seconds, first)

    def _likeliest(self, logits: torch.Tensor, count: int, position: int) -> tuple[int, ...]:
        """Tokens by the law's scores of logits [1, vocabulary], the best first."""
        values, tokens = self.law.scores(logits, position)[0].topk(min(count, logits.shape[-1]))
        return tuple(t for t, value in zip(tokens.tolist(), values.tolist()) if value > float("-inf"))

    def _drawn_tree(self, context: Sequence[int], most: int, nodes: int) -> DraftTree:
        """The same level by level with drawn nodes, all of which are verified."""
        grown = DrawnTree(self.law, _ORIGIN, self.top_k, nodes, distinct=self.draw == "distinct")
        rows: dict[int, int] = {}
        beam, levels = [-1], 0
        while beam and len(grown.tree) < nodes and self._goes_on(self._reached(levels), most):
            found = grown.level(beam, self._after(context, grown.tree, beam, rows))
            beam = [i for i in found if grown.tree.tokens[i] not in self.ends]
            levels += 1
        self.model.drop()
        grown.tree.note = {"draft forwards": levels, "draw": self.draw, "draws": grown.count}
        return grown.tree

    def _reached(self, levels: int) -> list[float]:
        """The chance that a text comes past each of so many levels, by what has been seen. The drafter's probability of
        what it drew says little about that: a draw is as good as its distribution."""
        if self.budget is None:
            return [1.0] * levels
        return list(accumulate(self.budget.acceptance.chances(LEVELS, copied=False)[:levels], mul))

    def _not_drawn(self) -> dict[str, str]:
        """Why a tree was not drawn though the option asks for it."""
        if self.draw == "top":
            return {}
        by_noise = self.law.name == "exact" and not self.law.sampling.greedy
        return {"draw": "by the law's noise" if by_noise else "top: nothing to draw"}

    def _after(
        self, context: Sequence[int], tree: DraftTree, beam: list[int], rows: dict[int, int]
    ) -> torch.Tensor:
        """Logits [beam, vocabulary] after each node of the beam, one forward; ``rows`` says where earlier ones lie."""
        if beam == [-1]:
            return self._catch_up(context)[None]
        parents = [rows.get(tree.parents[i], -1) for i in beam]
        rows |= {node: len(rows) + r for r, node in enumerate(beam)}
        return self._fit(self.model.forward([tree.tokens[i] for i in beam], parents))

    def _children(
        self, tree: DraftTree, scores: list[float], beam: list[int], logits: torch.Tensor, position: int
    ) -> list[int]:
        """Add the ``top_k`` most likely children of each beam node; ``scores`` gets their path log probabilities."""
        log_probs = self.law.scores(logits, position).log_softmax(-1)
        values, tokens = log_probs.topk(min(self.top_k, log_probs.shape[-1]), -1)
        added = []
        for node, row_values, row_tokens in zip(beam, values.tolist(), tokens.tolist()):
            above = scores[node] if node >= 0 else 0.0
            for value, token in zip(row_values, row_tokens):
                if value == float("-inf"):
                    continue
                tree.tokens.append(token)
                tree.parents.append(node)
                tree.probs.append(math.exp(value))
                tree.origin.append(0)
                scores.append(above + value)
                added.append(len(tree) - 1)
        return added


def _pad(logits: torch.Tensor, width: int) -> torch.Tensor:
    import torch

    return torch.nn.functional.pad(logits, (0, width - logits.shape[-1]), value=float("-inf"))


DRAFTER = DraftModel
