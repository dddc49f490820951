"""RASD's retrieval tree: the prefixes that weigh most among all continuations that Algorithm 1 finds (3.2.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.datastores.search.continuations import Continuations, Lookup, collect, merge, together
from engines.datastores.search.trie import heaviest
from engines.methods.drafter import reach
from engines.methods.shared.conversation import Conversation
from engines.methods.shared.found_tree import from_conversation, from_stores

if TYPE_CHECKING:
    from engines.datastores.search.sparse import SparseStore


@dataclass(frozen=True, slots=True)
class SuffixSearch:
    """How continuations are found: suffixes of ``n_max`` down to ``n_min`` tokens, until there are ``count`` (the
    paper's n), and ``length`` tokens of each (its l)."""

    count: int
    length: int
    n_max: int
    n_min: int

    def after(self, store: Lookup, context: Sequence[int], depth: int) -> Continuations:
        """What follows the end of a context, at most ``depth`` tokens of each."""
        return collect(store, context, self.count, min(self.length, depth), self.n_max, self.n_min)


class FromStores:
    """From sparse datastores, in one go (as the paper does with REST's)."""

    def __init__(self, stores: Sequence[SparseStore], search: SuffixSearch) -> None:
        self.stores, self.together, self.search = stores, together(stores), search

    def start(self, outcome: Outcome) -> None:
        """Touch the datastores: reading them from disk counts as prefill."""
        self.search.after(self.together, outcome.context, 1)

    def find(self, context: Sequence[int], limits: DraftLimits, drafted: DraftTree) -> tuple[DraftTree, int]:
        """The tree after a context, and down to which depth its nodes are those of ``drafted``, the drafter's tree,
        appended to the context to find the others."""
        clock = perf_counter()
        found = self.search.after(self.together, context, limits.depth)
        seconds = perf_counter() - clock
        return from_stores(found, heaviest(found, limits.nodes), self.stores, seconds), 0


class FromContext:
    """From prompt and answer, as prompt lookup does. Where nothing is found, the drafter's likeliest tokens of a depth
    are appended, ``width`` of them, then those of the next depth, until something is (the paper's section 3.2.1)."""

    def __init__(self, search: SuffixSearch, width: int) -> None:
        self.conversation, self.search, self.width = Conversation(), search, width

    def start(self, outcome: Outcome) -> None:
        """A run begins."""
        self.conversation = Conversation(outcome.context, outcome.prompt_length)

    def find(self, context: Sequence[int], limits: DraftLimits, drafted: DraftTree) -> tuple[DraftTree, int]:
        """As of ``FromStores``."""
        clock = perf_counter()
        self.conversation.grow(context)
        found, shared = self._after(context, [], 1.0, limits.depth), 0
        for level in _levels(drafted, self.width):
            if len(found) or len(level[0][0]) >= limits.depth:
                break
            shared = len(level[0][0])
            found = merge([self._after(context, path, chance, limits.depth) for path, chance in level])
        seconds = perf_counter() - clock
        tree = from_conversation(found, heaviest(found, limits.nodes), self.conversation, seconds)
        return tree, shared if len(found) else 0

    def _after(self, context: Sequence[int], path: list[int], chance: float, depth: int) -> Continuations:
        """What follows the context and a drafted path that is reached with this chance; the path leads each."""
        found = self.search.after(self.conversation, [*context[-self.search.n_max :], *path], depth - len(path))
        led = np.tile(np.array(path, np.int32), (len(found), 1))
        return replace(found, tokens=np.concatenate([led, found.tokens], axis=1), weights=chance * found.weights)


def _levels(tree: DraftTree, width: int) -> Iterator[list[tuple[list[int], float]]]:
    """For each depth the ``width`` likeliest nodes: the tokens of the path to each, and its chance."""
    paths: list[list[int]] = []
    for token, parent in zip(tree.tokens, tree.parents):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    chances = reach(tree)
    for depth in range(1, max(map(len, paths), default=0) + 1):
        level = [node for node, path in enumerate(paths) if len(path) == depth]
        yield [(paths[node], chances[node]) for node in sorted(level, key=lambda node: -chances[node])[:width]]
