"""RASD: the drafter's tree fused with a tree of what was retrieved.

Source: "RASD: Retrieval-Augmented Speculative Decoding" (ACL submission): Algorithm 1 (collecting candidates), sections
3.2.2 (the retrieval tree as REST's Algorithm 2 makes it, and its pruning) and 3.2.3 (fusion). Choices of ours, where
the paper is silent: continuations are weighed (``collect``), so that a budget can choose among the nodes of both trees;
where the drafter drafts nothing, retrieval is not pruned. Nor is what begins with a token that it cannot rank: the
paper's EAGLE-2 ranks the whole vocabulary, an EAGLE-3 head or a draft model with another vocabulary only a part of it,
and that it has no probability for a rare token says nothing against that token.

The drafter's nodes are its likeliest tokens, never drawn: among drawn siblings a retrieved token would have to be tried
against what their distribution leaves, and a budget must not prune what was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.errors import UsageProblem
from engines.methods import find
from engines.methods.drafter import Drafter, Resources, in_order
from engines.methods.rasd import AUTO, DRAFTERS, REST, RasdNote
from engines.methods.rasd.fusion import fuse, pruned, side_by_side
from engines.methods.rasd.retrieval_tree import FromContext, FromStores, SuffixSearch
from engines.methods.shared.predictor_drafter import PredictorDrafter
from engines.methods.spec import MethodSpec


class Rasd(Drafter):
    """A tree drafter (one with ``grow``) and a retriever."""

    def __init__(
        self, resources: Resources, *, budget: str, drafter: str, retrieval: str, prune: bool, prune_top: int,
        fuse: bool, candidates: int, length: int, n_max: int, n_min: int, nodes: int, fraction: float,
        **tree: int,
    ) -> None:
        super().__init__(resources, budget)
        in_order(n_min=n_min, n_max=n_max)
        self.drafter = spec = _drafter(drafter, resources)
        options = spec.parse({"budget": budget, "shape": "tree", **tree})
        self.part: PredictorDrafter = spec.load_drafter()(resources, **options)
        self.features, self.reads = self.part.features, self.part.reads
        if not self.part.drafting.trees:
            raise UsageProblem(f"{self.part.drafting.name} cannot branch, and rasd fuses trees",
                               "choose another engine, or another draft model")
        search = SuffixSearch(candidates, length, n_max, n_min)
        if retrieval == REST:
            stores = resources.open_datastores.sparse(resources.datastores, fraction)
            self.searches(stores)
            self.retriever: FromStores | FromContext = FromStores(stores, search)
        else:
            self.retriever = FromContext(search, tree["top_k"])
        self.prune_top, self.fuse = prune_top if prune else 0, fuse
        self.nodes = nodes

    def remark(self) -> str:
        return self.part.remark()

    def start(self, outcome: Outcome) -> None:
        self.part.start(outcome)
        self.retriever.start(outcome)

    def follow(self, outcome: Outcome) -> None:
        self.part.follow(outcome)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        grown = self.part.grow(context, limits, self.prune_top)
        room = max(0, min(self.nodes, limits.nodes - len(grown.tree)))
        found, shared = self.retriever.find(context, DraftLimits(limits.depth, room), grown.tree)
        kept, lost = pruned(found, grown.begins) if grown.favourites else (found, {})
        tree = (fuse if self.fuse else side_by_side)(grown.tree, kept, shared)
        cut = tuple((self._word(token), count) for token, count in sorted(lost.items(), key=lambda item: -item[1]))
        tree.retrieval = replace(found.retrieval, pruned=cut)
        tree = self.worth_verifying(tree, grown.seconds)
        both = sum(origin >= 0 for origin in tree.also)
        tree.retrieval = replace(tree.retrieval, fused=both)
        tree.note = RasdNote(
            **grown.tree.note.plain(), match=tree.retrieval.match, fused=both, pruned=sum(lost.values()),
            shared=shared or None, drafter=self.drafter.id,
        )
        return tree

    def _word(self, token: int) -> str:
        return self.resources.words.piece(token) if self.resources.words is not None else str(token)


def _drafter(choice: str, resources: Resources) -> MethodSpec:
    """The method whose tree is taken. Raises UsageProblem where nothing is loaded that it could draft with."""
    allowed = [spec for spec in map(find, DRAFTERS) if choice in (AUTO, spec.id)]
    there = resources.available
    able = [spec for spec in allowed if DRAFTERS[spec.id] in there]
    if not able:
        needs = " or ".join(DRAFTERS[spec.id] for spec in allowed)
        others = "set drafter=auto, which takes what is loaded" if there else "choose another engine"
        raise UsageProblem(f"no {needs} is loaded, and rasd with drafter={choice} needs one",
                           f"give --draft-model or --head, or {others}")
    return able[0]
