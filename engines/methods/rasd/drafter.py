"""RASD: the draft model's tree fused with a tree of what was retrieved.

Source: "RASD: Retrieval-Augmented Speculative Decoding" (ACL submission): Algorithm 1 (collecting candidates), sections
3.2.2 (pruning) and 3.2.3 (fusion). Choices of ours, where the paper is silent: candidates are weighed (``collect``), so
that a budget can choose among the nodes of both trees; where the drafter drafts nothing, retrieval is not pruned.

The drafter's nodes are its likeliest tokens, never drawn: among drawn siblings a retrieved token would have to be tried
against what their distribution leaves, and a budget must not prune what was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.errors import UsageProblem
from engines.methods.draft_model import SPEC as DRAFT
from engines.methods.drafter import Drafter, Resources, in_order
from engines.methods.rasd import REST, RasdNote
from engines.report.events import Retrieval

if TYPE_CHECKING:
    from engines.methods.rasd.candidates import Candidates, Retriever

class Rasd(Drafter):
    """A tree drafter (one with ``grow``) and a retriever."""

    drafter = DRAFT

    def __init__(
        self, resources: Resources, *, budget: str, retrieval: str, prune: bool, prune_top: int, fuse: bool,
        candidates: int, length: int, n_max: int, n_min: int, nodes: int, **tree: int,
    ) -> None:
        from engines.methods.rasd.candidates import CandidateLimits, FromContext, FromStores

        super().__init__(resources, budget)
        in_order(n_min=n_min, n_max=n_max)
        options = self.drafter.parse({"budget": budget, "shape": "tree", **tree})
        self.part: Drafter = self.drafter.load_drafter()(resources, **options)
        self.features = self.part.features
        if not resources.draft_model.trees:
            raise UsageProblem(f"{resources.draft_model.name} cannot branch, and rasd fuses trees",
                               "choose another engine, or another draft model")
        wanted = CandidateLimits(candidates, n_max, n_min)
        if retrieval == REST:
            stores = resources.open_datastores.sparse(resources.datastores)
            self.datastores = tuple(store.name for store in stores)
            self.retriever: Retriever = FromStores(stores, wanted, resources.words)
        else:
            self.retriever = FromContext(wanted, tree["top_k"])
        self.prune_top, self.fuse = prune_top if prune else 0, fuse
        self.length, self.nodes = length, nodes

    def remark(self) -> str:
        return self.part.remark()

    def start(self, outcome: Outcome) -> None:
        self.part.start(outcome)
        self.retriever.start(outcome)

    def follow(self, outcome: Outcome) -> None:
        self.part.follow(outcome)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        grown = self.part.grow(context, limits, self.prune_top)
        clock = perf_counter()
        found = self.retriever.find(context, self.length, limits.depth, grown.tree)
        seconds = perf_counter() - clock
        used, pruned = found.keeping(grown.favourites) if grown.favourites else (found, {})
        tree = self._joined(grown.tree, used, max(0, min(self.nodes, limits.nodes - len(grown.tree))))
        both = sum(origin >= 0 for origin in tree.also)
        cut = tuple((self._word(token), count) for token, count in sorted(pruned.items(), key=lambda item: -item[1]))
        tree.retrieval = Retrieval(
            seconds=seconds, match=found.match, hits=found.hits, used=len(used.rows), passages=tuple(found.passages),
            pruned=cut, fused=both,
        )
        tree.note = RasdNote(
            **grown.tree.note.plain(), match=found.match, fused=both, pruned=sum(pruned.values()),
            shared=found.shared or None,
        )
        return self.budget.prune(tree, grown.seconds) if self.budget else tree

    def _joined(self, drafted: DraftTree, found: Candidates, nodes: int) -> DraftTree:
        from engines.methods.rasd.fusion import fuse, side_by_side

        join = fuse if self.fuse else side_by_side
        return join(drafted, found.tree(nodes), found.shared)

    def _word(self, token: int) -> str:
        return self.resources.words.piece(token) if self.resources.words is not None else str(token)
