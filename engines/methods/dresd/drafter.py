"""DReSD: what followed the hidden states most like the present one in a datastore.

Source: Gritta et al. 2025, "DReSD: Dense Retrieval for Speculative Decoding": Algorithm 1, sections 3.1 to 3.6. The
paper verifies its drafts as a batch; here they are merged into one tree, which accepts the same tokens at a fraction of
the cost. A node's probability is the share of the drafts that go through it, weighted by similarity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import NamedTuple

import numpy as np

from engines.core.outcome import DraftLimits, Outcome
from engines.core.sampling import to_numpy
from engines.core.tree import DraftTree
from engines.datastores.search.continuations import Continuations, Match, in_order
from engines.datastores.search.dense import DenseStore
from engines.datastores.search.trie import heaviest
from engines.methods.drafter import Drafter, Resources, chosen_row
from engines.methods.dresd import DresdNote
from engines.methods.passages import FoundOrigins, described, described_origins
from engines.model.feature_request import LAST, FeatureRequest
from engines.report.events import Passage, Retrieval

_DROPPED = 3  # neighbours that are shown though they were left out
_SHARPNESS = 20.0  # of the weights exp(sharpness * similarity), a kernel density as in kNN-LM: the nearest count most


class _Found(NamedTuple):
    """A neighbour: its similarity, its datastore, what followed it from a position on, the number of its key, how many
    neighbours went on like it, and how many of its datastore's passed the filter."""

    score: float
    store: DenseStore
    tokens: list[int]
    position: int
    key: int
    count: int
    matching: int


class DReSD(Drafter):
    """Retrieval by meaning from one or several dense datastores: the nearest of all are drafted."""

    features = FeatureRequest(latest=frozenset({LAST}))

    def __init__(
        self, resources: Resources, *, budget: str, drafts: int, length: int, distinct: bool,
        neighbours: int, fraction: float,
    ) -> None:
        super().__init__(resources, budget)
        self.stores: list[DenseStore] = resources.open_datastores.dense(resources.datastores, fraction)
        self.searches(self.stores)
        self.drafts, self.length, self.distinct, self.neighbours = drafts, length, distinct, neighbours
        self._outcome: Outcome | None = None
        self._hidden: np.ndarray | None = None  # of the latest search

    def start(self, outcome: Outcome) -> None:
        self.follow(outcome)
        self._neighbours(outcome.context, 1)  # reads the index from disk

    def follow(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        clock = perf_counter()
        found = self._neighbours(context, min(self.length, limits.depth))
        seconds = perf_counter() - clock
        tree = self._tree(found, limits.nodes, seconds)
        if self.resources.detail:
            tree = described(tree, self.resources.words)
            dropped, keys = self._dropped(context[-1])
            keys = [one.key for one in found[: len(tree.retrieval.passages)]] + keys
            tree.retrieval = replace(tree.retrieval, dropped=dropped, map=self._map(keys))
        return self.worth_verifying(tree)

    def _neighbours(self, context: Sequence[int], length: int) -> list[_Found]:
        """The nearest neighbours of the state of the row that produced the last token, in all datastores, the best
        first."""
        self._hidden = to_numpy(self.resources.target.features.latest(LAST)[chosen_row(self._outcome)])
        return self._nearest(context[-1], length, self.distinct, self.neighbours)[: self.drafts]

    def _nearest(self, emitted: int | None, length: int, distinct: bool, neighbours: int = 0) -> list[_Found]:
        """The same of the latest search, of each datastore as many."""
        found = []
        for store in self.stores:
            near = store.query(self._hidden, emitted, self.drafts, length, distinct, neighbours)
            columns = (near.tokens, near.positions, near.keys, near.counts)
            found += [_Found(score, store, *row, near.matching)
                      for score, *row in zip(near.scores.tolist(), *(column.tolist() for column in columns))]
        return sorted(found, key=lambda one: -one.score)  # of equals the first datastore's

    def _dropped(self, emitted: int) -> tuple[tuple[Passage, ...], list[int]]:
        """Of the nearest keys of all datastores those whose text went on with another token than the one emitted; and
        their numbers."""
        found = [one for one in self._nearest(None, 1, distinct=False) if one.tokens[0] != emitted]
        nearest, origins = found[:_DROPPED], FoundOrigins()
        for one in nearest:
            origins.index(one.store, one.position + 1, None, one.score)
        _, passages = described_origins(origins.origins, self.resources.words, _DROPPED)
        return tuple(passages), [one.key for one in nearest]

    def _map(self, numbers: Sequence[int]) -> tuple[tuple[float, float], ...]:
        """Where these keys of the only datastore lie around that of the present state; () of several datastores, whose
        keys cannot be compared."""
        if len(self.stores) != 1 or len(numbers) < 2:
            return ()
        store = self.stores[0]
        around = store.keys[np.array(numbers)].astype(np.float32) - store.reduction.one(self._hidden)
        directions = np.linalg.svd(around, full_matrices=False)[2][:2]
        return tuple((round(float(x), 4), round(float(y), 4)) for x, y in around @ directions.T)

    def _tree(self, found: list[_Found], nodes: int, seconds: float) -> DraftTree:
        tokens = np.array([one.tokens for one in found] or [[]], np.int32)[: len(found)]  # two dimensions in any case
        weights = [one.count * math.exp(_SHARPNESS * (one.score - found[0].score)) for one in found]
        order = in_order(tokens)
        positions = np.array([one.position for one in found], np.int64)[order]
        following = Continuations.of(tokens[order], positions, Match(0, len(found), None))
        following = replace(following, weights=np.array(weights)[order])
        chosen = heaviest(following, nodes, self.least_shares(None, tokens.shape[1], nodes))
        rows, origins = order.take(chosen.rows).tolist(), FoundOrigins()
        where = [origins.index(one.store, one.position, None, one.score) for one in found[: 1 + max(rows, default=-1)]]
        tree = DraftTree(chosen.tokens, chosen.parents, chosen.probs, [where[row] for row in rows], origins.origins)
        scores = tuple(round(one.score, 4) for one in found)
        hits = {one.store.name: one.matching for one in found}
        tree.retrieval = Retrieval(seconds=seconds, hits=sum(hits.values()), used=len(found), scores=scores)
        tree.note = DresdNote(neighbours=len(found), similarity=scores[0] if scores else None)
        return tree
