"""What RASD retrieves: continuations with the weight and the origin of each (its Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from engines.core.outcome import Outcome
from engines.core.tree import DraftTree
from engines.datastores.search.continuations import END, MergedStores, collect
from engines.methods.shared.conversation import Conversation
from engines.methods.shared.passages import Passages
from engines.methods.shared.weighted_trie import weighted_trie
from engines.report.events import Origin, Passage

if TYPE_CHECKING:
    from engines.datastores.search.continuations import Continuations
    from engines.datastores.search.sparse import SparseStore
    from engines.tokenization import Detokenizer


@dataclass(frozen=True, slots=True)
class CandidateLimits:
    """How candidates are collected: ``count`` of them (the paper's n) over suffixes of ``n_max`` down to ``n_min``
    tokens."""

    count: int
    n_max: int
    n_min: int


@dataclass(slots=True)
class Candidates:
    """Candidates, columns of equal length.

    Attributes:
        rows: token ids to draft after the context.
        weights: how much each is to be expected.
        origin: index into ``origins`` of each.
        match, hits: length of the longest suffix that was found, 0 for none, and occurrences.
        shared: how many tokens at the head of each row are the drafter's own, appended to the context to find it.
    """

    rows: list[list[int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    match: int = 0
    hits: int = 0
    shared: int = 0

    def keeping(self, firsts: Sequence[int]) -> tuple[Candidates, dict[int, int]]:
        """The candidates that begin with one of these tokens; of the others, how many nodes each first token had."""
        lost: dict[int, set[tuple[int, ...]]] = {}
        for row in self.rows:
            if row[0] not in firsts:
                lost.setdefault(row[0], set()).update(tuple(row[:depth]) for depth in range(1, len(row) + 1))
        stay = [i for i, row in enumerate(self.rows) if row[0] in firsts]
        rows, weights, origin = ([column[i] for i in stay] for column in (self.rows, self.weights, self.origin))
        kept = replace(self, rows=rows, weights=weights, origin=origin)
        return kept, {token: len(nodes) for token, nodes in lost.items()}

    def tree(self, nodes: int) -> DraftTree:
        """The trie of the candidates, its heaviest nodes."""
        tree = weighted_trie(self.rows, self.weights, nodes)
        tree.origin, tree.origins = [self.origin[row] for row in tree.origin], list(self.origins)
        return tree


class Retriever(Protocol):
    """Where candidates come from."""

    def start(self, outcome: Outcome) -> None:
        """A run begins."""

    def find(self, context: Sequence[int], length: int, depth: int, drafted: DraftTree) -> Candidates:
        """Candidates of ``length`` tokens that reach no deeper than ``depth``; ``drafted`` is the drafter's tree."""


class FromStores:
    """From sparse datastores, in one go (as the paper does with REST's)."""

    def __init__(self, stores: Sequence[SparseStore], wanted: CandidateLimits, words: Detokenizer | None) -> None:
        self.together, self.wanted, self.words = MergedStores(stores), wanted, words

    def start(self, outcome: Outcome) -> None:
        """Touch the datastores: reading them from disk counts as prefill."""
        self.find(outcome.context, 1, 1, DraftTree())

    def find(self, context: Sequence[int], length: int, depth: int, drafted: DraftTree) -> Candidates:
        """See ``Retriever``."""
        found = _collected(self.together, context, min(length, depth), self.wanted)
        passages = Passages(self.words)
        origin = [0] * len(found)
        for row in sorted(range(len(found)), key=lambda row: -found.weights[row]):  # the likeliest is shown first
            store = self.together.stores[found.stores[row]]
            origin[row] = passages.origin(
                store, int(found.positions[row]), int(found.matched[row]), float(found.weights[row])
            )
        return Candidates(
            rows=_rows(found), weights=found.weights.tolist(), origin=origin, origins=passages.origins,
            passages=passages.passages, match=int(found.matched.max(initial=0)), hits=found.total,
        )


class FromContext:
    """From prompt and answer, as prompt lookup does. Where nothing is found, the drafter's likeliest tokens of a depth
    are appended, ``width`` of them, then those of the next depth, until something is (the paper's section 3.2.1)."""

    def __init__(self, wanted: CandidateLimits, width: int) -> None:
        self.conversation, self.wanted, self.width = Conversation(), wanted, width

    def start(self, outcome: Outcome) -> None:
        """See ``Retriever``."""
        self.conversation.start(outcome)

    def find(self, context: Sequence[int], length: int, depth: int, drafted: DraftTree) -> Candidates:
        """See ``Retriever``."""
        self.conversation.grow(context)
        found = Candidates()
        self._add(found, context, [], 1.0, min(length, depth))
        for level in _levels(drafted, self.width):
            if found.rows or len(level[0][0]) >= depth:
                break
            found.shared = len(level[0][0])
            for path, reach in level:
                self._add(found, context, path, reach, min(length, depth - len(path)))
        return found if found.rows else Candidates()

    def _add(self, found: Candidates, context: Sequence[int], path: list[int], reach: float, length: int) -> None:
        """Candidates after the context and a drafted path that is reached with this chance."""
        got = _collected(self.conversation.store, [*context[-self.wanted.n_max :], *path], length, self.wanted)
        known = len(found.origins)
        found.rows += [[*path, *row] for row in _rows(got)]
        found.weights += [reach * weight for weight in got.weights.tolist()]
        found.origin += range(known, known + len(got))
        found.origins += map(self.conversation.origin, got.positions.tolist(), got.matched.tolist())
        found.match = max(found.match, int(got.matched.max(initial=0)))
        found.hits += got.total


def _collected(store, context: Sequence[int], length: int, wanted: CandidateLimits) -> Continuations:
    return collect(store, context, wanted.count, length, wanted.n_max, wanted.n_min)


def _rows(found: Continuations) -> list[list[int]]:
    return [[token for token in row if token != END] for row in found.tokens.tolist()]


def _levels(tree: DraftTree, width: int) -> Iterator[list[tuple[list[int], float]]]:
    """For each depth the ``width`` likeliest nodes: the tokens of the path to each, and its chance."""
    paths: list[list[int]] = []
    reach: list[float] = []
    for token, parent, prob in zip(tree.tokens, tree.parents, tree.probs):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
        reach.append((reach[parent] if parent >= 0 else 1.0) * (1.0 if prob is None else prob))
    for depth in range(1, max(map(len, paths), default=0) + 1):
        level = [node for node, path in enumerate(paths) if len(path) == depth]
        yield [(paths[node], reach[node]) for node in sorted(level, key=lambda node: -reach[node])[:width]]
