"""The results of retrieval by exact match: where a suffix of the context occurs, and what follows there.

Every store that matches exactly is a ``Lookup``: ``sparse.SparseStore``, and the conversation itself
(``engines.methods.shared.conversation``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

END = -1  # in place of a token after the end of a document


@dataclass(frozen=True, slots=True)
class Match:
    """Occurrences of the last ``length`` tokens of the context that have a token after them.

    Attributes:
        length: tokens that match, the last emitted one included.
        count: how many occurrences, at least 1.
        where: the occurrences, in a form that only the store knows.
    """

    length: int
    count: int
    where: Any


@dataclass(frozen=True, slots=True)
class Continuations:
    """What follows the occurrences of a match, in lexicographic order of token ids, equal ones side by side.

    Attributes:
        tokens: int32 [rows, length], ``END`` from the end of a document on; no row is empty.
        positions: int64 [rows], the position in its store of each row's first token.
        matched: int32 [rows], tokens that matched before it.
        total: number of occurrences; more than rows if they were sampled.
        stores: int32 [rows], which of several stores each row is from (``merge``, ``MergedStores``).
        weights: float64 [rows], how much each counts (``collect``); None if all count alike.
    """

    tokens: np.ndarray
    positions: np.ndarray
    matched: np.ndarray
    total: int
    stores: np.ndarray
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def of(cls, tokens: np.ndarray, positions: np.ndarray, match: Match) -> Continuations:
        """The continuations of one match, which must be in order already."""
        rows = len(positions)
        matched = np.full(rows, match.length, np.int32)
        return cls(tokens.astype(np.int32, copy=False), positions, matched, match.count, np.zeros(rows, np.int32))


class Lookup(Protocol):
    """A store that is searched for the end of a context."""

    def longest(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Match | None:
        """The match of the longest suffix, of at most ``n_max`` and at least ``n_min`` tokens, that occurs with a token
        after it (REST's Algorithm 1); None where none does."""

    def falling(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Iterator[Match]:
        """The matches of ever shorter suffixes, from the longest that occurs down to ``n_min``: each holds all
        occurrences of the ones before."""

    def continuations(self, match: Match, length: int = 10, limit: int = 5000) -> Continuations:
        """Up to ``length`` tokens after each occurrence; of more than ``limit``, that many at equal strides."""


def spread(count: int, limit: int) -> np.ndarray:
    """At most ``limit`` of the numbers below ``count``, ascending, at equal strides: int64."""
    if count <= limit:
        return np.arange(count)
    return (2 * np.arange(limit, dtype=np.int64) + 1) * count // (2 * limit)


def in_order(tokens: np.ndarray) -> np.ndarray:
    """The order of rows by token ids, an ended row after those that go on; equal ones stay in order. int64 [rows]."""
    if not tokens.size:
        return np.arange(len(tokens))
    keys = np.ascontiguousarray(tokens.astype(">u4"))  # END becomes the largest
    return np.argsort(keys.view(f"S{4 * keys.shape[1]}")[:, 0], kind="stable")


def merge(parts: Sequence[Continuations]) -> Continuations:
    """Continuations from several stores as one, in order again; ``stores`` says which of ``parts`` a row is from."""
    if not parts:
        raise ValueError("nothing to merge")
    width = max(p.tokens.shape[1] for p in parts)
    tokens = np.concatenate([
        np.pad(p.tokens, ((0, 0), (0, width - p.tokens.shape[1])), constant_values=END) for p in parts
    ])  # fmt: skip
    order = in_order(tokens)
    return Continuations(
        tokens[order],
        np.concatenate([p.positions for p in parts])[order],
        np.concatenate([p.matched for p in parts])[order],
        sum(p.total for p in parts),
        np.repeat(np.arange(len(parts), dtype=np.int32), [len(p) for p in parts])[order],
        np.concatenate([p.weights for p in parts])[order] if all(p.weights is not None for p in parts) else None,
    )


def collect(
    store: Lookup, context: Sequence[int], count: int, length: int = 10, n_max: int = 16, n_min: int = 1
) -> Continuations:
    """Distinct continuations over falling suffix lengths until there are ``count`` (RASD's Algorithm 1). Of the last
    suffix too all are taken: its section 3.2.2 chooses among prefixes, not among continuations.

    They are weighed as Witten and Bell mix n-grams of several lengths: of n occurrences with d different next tokens, a
    suffix keeps n / (n + d) of the weight for its continuations, by their counts, and leaves the rest to shorter ones.

    Args:
        count: shorter suffixes are searched until so many are found.
        length: tokens of each (RASD's l).

    Returns:
        In the order of ``Continuations``; ``matched`` is the longest suffix that each was found by, ``total`` the
        occurrences of the shortest suffix that was needed.
    """
    levels: list[Continuations] = []
    weights: list[float] = []  # of an occurrence
    total, left = 0, 1.0
    for match in store.falling(context, n_max, n_min):
        if match.count > total:  # else the longer suffix has the same occurrences
            levels.append(store.continuations(match, length))
            weights.append(0.0)
            total = match.count
        found = levels[-1]
        level = left / (len(found) + len(_begins(found.tokens[:, :1])))
        left -= level * len(found)
        weights[-1] += level
        if len(_begins(found.tokens)) >= count:
            break
    return _together(levels, weights, length)


def _begins(tokens: np.ndarray) -> np.ndarray:
    """The first of each run of equal rows."""
    return np.flatnonzero(np.append(True, (tokens[1:] != tokens[:-1]).any(axis=1))[: len(tokens)])


def _together(levels: Sequence[Continuations], weights: Sequence[float], length: int) -> Continuations:
    """What followed ever shorter suffixes as distinct rows, given the weight of an occurrence of each suffix."""
    if not levels:
        none = np.zeros(0, np.int32)
        return Continuations(none.reshape(0, length), none.astype(np.int64), none, 0, none, np.zeros(0))
    columns = [(found.tokens, found.positions, found.matched, found.stores) for found in levels]
    tokens, positions, matched, stores = map(np.concatenate, zip(*columns))
    order = in_order(tokens) if len(levels) > 1 else np.arange(len(tokens))
    weighed, tokens = np.repeat(weights, [len(found) for found in levels])[order], tokens[order]
    begins = _begins(tokens)
    first = order[begins]  # found by the longest suffix: the order is stable
    return Continuations(
        tokens[begins], positions[first], matched[first], levels[-1].total, stores[first],
        np.add.reduceat(weighed, begins),
    )


def together(stores: Sequence[Lookup]) -> Lookup:
    """Several stores as one; one as it is."""
    return stores[0] if len(stores) == 1 else MergedStores(stores)


class MergedStores:
    """Several stores searched as one (a ``Lookup``): a match is of all those that have the suffix, and
    ``Continuations.stores`` says which one a row is from."""

    def __init__(self, stores: Sequence[Lookup]) -> None:
        self.stores = list(stores)

    def longest(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Match | None:
        matches = [(i, store.longest(context, n_max, n_min)) for i, store in enumerate(self.stores)]
        return _joined({i: match for i, match in matches if match})

    def falling(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Iterator[Match]:
        searches = [store.falling(context, n_max, n_min) for store in self.stores]
        heads = {i: next(search, None) for i, search in enumerate(searches)}
        while match := _joined({i: head for i, head in heads.items() if head}):
            yield match
            heads |= {i: next(searches[i], None) for i, _ in match.where}

    def continuations(self, match: Match, length: int = 10, limit: int = 5000) -> Continuations:
        """See ``Lookup``; the limit is each store's."""
        parts = [self.stores[i].continuations(one, length, limit) for i, one in match.where]
        found = parts[0] if len(parts) == 1 else merge(parts)
        return replace(found, stores=np.array([i for i, _ in match.where], np.int32)[found.stores])


def _joined(matches: dict[int, Match]) -> Match | None:
    """The longest of several stores' matches as one; where several are as long, all of them."""
    longest = max((match.length for match in matches.values()), default=0)
    where = [(i, match) for i, match in matches.items() if match.length == longest]
    return Match(longest, sum(match.count for _, match in where), where) if where else None
