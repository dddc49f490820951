"""REST: what followed the longest suffix of the context in a datastore, as the heaviest nodes of a trie.

Source: He et al. 2024, "REST: Retrieval-Based Speculative Decoding": Algorithm 1 (retrieval), Algorithm 2 (selection).
Differences from the published code: the exact top nodes with deterministic ties; large match sets are sampled at equal
strides instead of taking the first in lexicographic order; a miss drafts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.datastores.search.continuations import Continuations, together
from engines.datastores.search.sparse import SparseStore
from engines.datastores.search.trie import drawn, heaviest
from engines.methods.drafter import Drafter, Resources, in_order
from engines.methods.rest import RestNote
from engines.methods.shared.found_tree import from_stores
from engines.report.events import Retrieval

_DRAWN = 8  # sequences, and tokens of each (section 5, Table 3): as many as the nodes of the trie


class Rest(Drafter):
    """Retrieval by exact match from one or several datastores: the longest match of all wins."""

    def __init__(
        self, resources: Resources, *, budget: str, c: int, length: int, n_max: int, n_min: int, select: str,
        samples: int, fraction: float,
    ) -> None:
        super().__init__(resources, budget)
        in_order(n_min=n_min, n_max=n_max)
        self.stores: list[SparseStore] = resources.open_datastores.sparse(resources.datastores, fraction)
        self.searches(self.stores)
        self.together = together(self.stores)
        self.c, self.length, self.n_max, self.n_min = c, length, n_max, n_min
        self.select, self.samples = select, samples

    def start(self, outcome: Outcome) -> None:
        """Touch the datastores, so that reading them from disk counts as prefill and not as drafting."""
        self._lookup(outcome.context, 1)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        clock = perf_counter()
        length = self.length if self.select == "trie" else min(self.length, _DRAWN)
        found = self._lookup(context, min(length, limits.depth))
        seconds = perf_counter() - clock
        if found is None:
            return DraftTree(retrieval=Retrieval(seconds, 0), note=RestNote(match=0))
        nodes = min(self.c, limits.nodes)
        least = self.least_shares(int(found.matched[0]), found.tokens.shape[1], nodes)
        chosen = (heaviest(found, nodes, least) if self.select == "trie" else
                  drawn(found, nodes, (len(context), self.c), sequences=_DRAWN))
        tree = from_stores(found, chosen, self.stores, seconds)
        tree.note = RestNote(match=tree.retrieval.match, hits=found.total)
        return self.worth_verifying(tree)

    def _lookup(self, context: Sequence[int], length: int) -> Continuations | None:
        """What followed the longest match; where several datastores have it, all of them together."""
        match = self.together.longest(context, self.n_max, self.n_min)
        return self.together.continuations(match, length, self.samples) if match else None
