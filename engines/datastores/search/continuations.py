"""The results of retrieval by exact match: where a suffix of the context occurs, and what follows there.

Every store that matches exactly (``sparse.SparseStore``, ``dynamic.DynamicStore``) is a ``Lookup``.
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
        weights: float64 [rows], the expected share of each (``collect``); None if all count alike.
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
    )


def collect(
    store: Lookup, context: Sequence[int], count: int, length: int = 10, n_max: int = 16, n_min: int = 1,
    limit: int = 5000,
) -> Continuations:
    """Distinct continuations over falling suffix lengths until there are ``count`` (RASD's Algorithm 1). Of too many,
    those that occur most often (its section 3.2.2), of equally frequent ones some at equal strides.

    They are weighed as Witten and Bell mix n-grams of several lengths: of n occurrences with d different next tokens, a
    suffix keeps n / (n + d) of the weight for its continuations, by their counts, and leaves the rest to shorter ones.

    Args:
        count: continuations wanted; fewer come back where there are no more.
        length: tokens of each (RASD's l).
        limit: occurrences of one suffix that are looked at, at equal strides.

    Returns:
        In the order of ``Continuations``; ``matched`` is the longest suffix that each was found by, ``total`` the
        occurrences of the shortest suffix that was needed.
    """
    chosen: dict[bytes, int] = {}  # index into the columns
    rows: list[tuple[np.ndarray, int, int, int]] = []  # tokens, position, matched, store
    weights: list[float] = []
    total, left = 0, 1.0
    for match in store.falling(context, n_max, n_min):
        found, total = store.continuations(match, length, limit), match.count
        begins = np.flatnonzero(np.append(True, (found.tokens[1:] != found.tokens[:-1]).any(axis=1)))
        counts = np.diff(begins, append=len(found))
        keys = [found.tokens[i].tobytes() for i in begins]
        new = [i for i, key in enumerate(keys) if key not in chosen]
        for i in _likeliest(new, counts, count - len(chosen)):
            at = begins[i]
            chosen[keys[i]] = len(rows)
            rows.append((found.tokens[at], int(found.positions[at]), match.length, int(found.stores[at])))
            weights.append(0.0)
        level = left / (len(found) + len(np.unique(found.tokens[:, 0])))
        for key, n in zip(keys, counts.tolist()):
            if key in chosen:
                weights[chosen[key]] += level * n
        left -= level * len(found)
        if len(chosen) >= count:
            break
    tokens = np.array([row[0] for row in rows], np.int32).reshape(len(rows), length)
    order = in_order(tokens)
    return Continuations(
        tokens[order],
        np.array([row[1] for row in rows], np.int64)[order],
        np.array([row[2] for row in rows], np.int32)[order],
        total,
        np.array([row[3] for row in rows], np.int32)[order],
        np.array(weights)[order],
    )


def _likeliest(new: list[int], counts: np.ndarray, most: int) -> list[int]:
    """At most so many of some continuations, by number: the most frequent, of equal ones some at equal strides."""
    if len(new) <= most:
        return new
    least = np.sort(counts[new])[-most]
    equal = [i for i in new if counts[i] == least]
    more = [i for i in new if counts[i] > least]
    return sorted([*more, *(equal[j] for j in spread(len(equal), most - len(more)))])


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
