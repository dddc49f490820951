"""RASD: the draft model's tree fused with a tree of what was retrieved.

Source: "RASD: Retrieval-Augmented Speculative Decoding" (ACL submission): Algorithm 1 (collecting candidates), sections
3.2.2 (pruning) and 3.2.3 (fusion). Choices of ours, where the paper is silent: candidates are weighed (``collect``), so
that a budget can choose among the nodes of both trees; where the drafter drafts nothing, retrieval is not pruned.

The drafter's nodes are its likeliest tokens, never drawn: among drawn siblings a retrieved token would have to be tried
against what their distribution leaves, and a budget must not prune what dice chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from engines.core.tree import DraftTree
from engines.errors import UsageProblem
from engines.methods.draft_model.drafter import SPEC as DRAFT
from engines.methods.drafter import Drafter, DraftLimits, Outcome, Resources
from engines.methods.options import BUDGET, Option
from engines.methods.registry import EngineSpec, drafter_class, find
from engines.report.events import Retrieval

if TYPE_CHECKING:
    from engines.methods.rasd.candidates import Candidates, Retriever

_TREE = tuple(option for option in DRAFT.options if option.name in ("depth", "top_k", "total_nodes"))

SPEC = EngineSpec(
    id="rasd",
    title="RASD",
    summary="Fuses the draft model's tree with a tree of what was retrieved, pruned by the draft model's belief.",
    source="RASD: Retrieval-Augmented Speculative Decoding (ACL submission), algorithm 1",
    options=(
        BUDGET,
        Option("retrieval", "rest", "From the datastores, as REST does, or from prompt and answer, as prompt lookup "
               "does: that needs no datastore.", choices=("rest", "pld")),
        Option("prune", True, "Reject what does not begin with one of the draft model's likeliest tokens (Table 3)."),
        Option("prune_top", 10, "How many of them.", 1, 64),
        Option("fuse", True, "Merge common prefixes of the two trees; false hangs both under one root (Table 3)."),
        Option("candidates", 16, "Continuations collected (the paper's n).", 1, 256),
        Option("length", 8, "Tokens of each (the paper's l).", 1, 64),
        Option("n_max", 16, "Longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Shortest suffix that counts as a match.", 1, 64),
        Option("nodes", 64, "Most nodes of the retrieval tree, the heaviest.", 1, 256),
        *_TREE,
    ),
    needs=("draft model", "datastore"),
    storeless=("retrieval", "pld"),
)


class Rasd(Drafter):
    """A tree drafter (one with ``grow``) and a retriever."""

    drafter = "draft"

    def __init__(
        self, resources: Resources, *, budget: str, retrieval: str, prune: bool, prune_top: int, fuse: bool,
        candidates: int, length: int, n_max: int, n_min: int, nodes: int, **tree: int,
    ) -> None:
        from engines.methods.rasd.candidates import CandidateLimits, FromContext, FromStores

        super().__init__(resources, budget)
        if n_min > n_max:
            raise UsageProblem(f"n_min={n_min} is above n_max={n_max}", "set n_min to at most n_max")
        options = find(self.drafter).parse({"budget": budget, "shape": "tree", **tree})
        self.part: Drafter = drafter_class(self.drafter)(resources, **options)
        self.wants_hidden = self.part.wants_hidden
        if not resources.draft_model.trees:
            raise UsageProblem(f"{resources.draft_model.name} cannot branch, and rasd fuses trees",
                               "choose another engine, or another draft model")
        wanted = CandidateLimits(candidates, n_max, n_min)
        if retrieval == "rest":
            stores = resources.shelf.sparse(resources.datastores)
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

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        grown = self.part.grow(context, room, self.prune_top)
        clock = perf_counter()
        found = self.retriever.find(context, self.length, room.depth, grown.tree)
        seconds = perf_counter() - clock
        used, pruned = found.keeping(grown.favourites) if grown.favourites else (found, {})
        tree = self._joined(grown.tree, used, max(0, min(self.nodes, room.nodes - len(grown.tree))))
        both = sum(origin >= 0 for origin in tree.also)
        cut = tuple((self._word(token), count) for token, count in sorted(pruned.items(), key=lambda item: -item[1]))
        tree.retrieval = Retrieval(
            seconds, found.match, found.hits, len(used.rows), (), tuple(found.passages), cut, both
        )
        tree.note |= {"match": found.match, "fused": both, "pruned": sum(pruned.values())}
        if found.shared:
            tree.note["found after drafted tokens"] = found.shared
        return self.budget.prune(tree, grown.seconds) if self.budget else tree

    def _joined(self, drafted: DraftTree, found: Candidates, nodes: int) -> DraftTree:
        from engines.methods.rasd.fusion import fuse, side_by_side

        join = fuse if self.fuse else side_by_side
        return join(drafted, found.tree(nodes), found.shared)

    def _word(self, token: int) -> str:
        return self.resources.words.piece(token) if self.resources.words is not None else str(token)


DRAFTER = Rasd
