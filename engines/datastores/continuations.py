"""What retrieval gives: where the end of the context occurs, and what follows there.

Every store that matches exactly (``sparse.SparseStore``, ``dynamic.DynamicStore``) has the face ``Lookup``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

END = -1  # in place of a token, where a document has ended


@dataclass(frozen=True, slots=True)
class Match:
    """Occurrences of the last ``length`` tokens of the context that have a token after them.

    Attributes:
        length: tokens that match, the last emitted one included.
        count: how many occurrences, at least 1.
        where: the store's own note of them.
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
        total: occurrences there are; more than rows where they were sampled.
        stores: int32 [rows], which of several stores each row is from (``merge``).
    """

    tokens: np.ndarray
    positions: np.ndarray
    matched: np.ndarray
    total: int
    stores: np.ndarray

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def of(cls, tokens: np.ndarray, positions: np.ndarray, match: Match) -> Continuations:
        """Those of one match, in order already."""
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
    """Distinct continuations over falling suffix lengths until there are ``count`` (RASD's Algorithm 1).

    Args:
        count: continuations wanted; fewer come back where there are no more.
        length: tokens of each (RASD's l).
        limit: occurrences of one suffix that are looked at, at equal strides.

    Returns:
        In the order of ``Continuations``; ``matched`` is the longest suffix that each was found by, ``total`` the
        occurrences of the shortest suffix that was needed.
    """
    chosen: dict[bytes, tuple[np.ndarray, int, int]] = {}
    total = 0
    for match in store.falling(context, n_max, n_min):
        found, total = store.continuations(match, length, limit), match.count
        first = np.ones(len(found), bool)
        first[1:] = (found.tokens[1:] != found.tokens[:-1]).any(axis=1)
        new = [i for i in np.flatnonzero(first) if found.tokens[i].tobytes() not in chosen]
        for i in (new[j] for j in spread(len(new), count - len(chosen))):
            chosen[found.tokens[i].tobytes()] = (found.tokens[i], int(found.positions[i]), match.length)
        if len(chosen) >= count:
            break
    tokens = np.array([row for row, _, _ in chosen.values()], np.int32).reshape(len(chosen), length)
    order = in_order(tokens)
    return Continuations(
        tokens[order],
        np.array([at for _, at, _ in chosen.values()], np.int64)[order],
        np.array([size for _, _, size in chosen.values()], np.int32)[order],
        total,
        np.zeros(len(chosen), np.int32),
    )
