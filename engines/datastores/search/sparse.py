"""A datastore searched by exact match: token ids with a suffix array over them, mapped into memory.

Documents lie one after another, each followed by a separator that is larger than any token. So no match and no
continuation crosses the end of a document, and among the occurrences of a suffix, which are neighbours in the suffix
array, those at the end of a document come last. Tokens are big-endian: comparing bytes is comparing tokens.

Source: REST, Algorithm 1 (He et al. 2024); Manber and Myers 1993.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from engines.datastores.search.continuations import END, Continuations, Match, spread
from engines.datastores.search.native_lookups import NativeSearch
from engines.datastores.storage.datastore import Documents, Store
from engines.datastores.storage.manifest import damaged
from engines.model.native import loaded


def token_dtype(vocab_size: int) -> str:
    """How the token ids of a vocabulary are stored; the largest number is the separator."""
    return ">u2" if vocab_size <= 0xFFFF else ">u4"


def token_bytes(vocab_size: int) -> int:
    """What a token takes on the disk: its id, and its place among the suffixes."""
    return np.dtype(token_dtype(vocab_size)).itemsize + 4


class SparseStore:
    """The sparse part of a datastore (a ``continuations.Lookup``). Positions count tokens and separators. ``fraction``:
    share of it that is searched, its first documents (``Documents.first``). ``sizes``: bytes on the disk, by file, in
    proportion to what is searched. Raises DatastoreProblem: there is no sparse part, or its arrays don't fit."""

    def __init__(self, store: Store, fraction: float = 1.0) -> None:
        self.store, facts = store, store.manifest
        self.name, self.vocab_size = store.name, facts.vocab_size
        dtype = token_dtype(facts.vocab_size)
        tokens, order = store.array("tokens", dtype), store.array("suffixes", "<i4")
        self.documents = Documents(store)
        if len(order) != facts.tokens or len(tokens) != facts.tokens + facts.documents or not len(order):
            raise damaged(store.folder, "its arrays don't fit together")
        self._width = tokens.dtype.itemsize
        self._text = store.bytes("tokens.bin")
        self._tokens = tokens.view(tokens.dtype.newbyteorder("="))
        self._separator = b"\xff" * self._width
        self._suffixes = order
        self._order = memoryview(store.bytes("suffixes.bin")).cast("i")  # gives Python's integers: faster one by one
        self._search: NativeSearch | None = None
        end = self.documents.first(fraction)
        self.sizes = store.sizes("sparse", end / len(tokens))
        if end < len(tokens):
            self._suffixes = order[order < end]
            self._order = memoryview(self._suffixes).cast("B").cast("i")

    def __len__(self) -> int:
        """Tokens, separators left out."""
        return len(self._suffixes)

    @property
    def _native(self) -> NativeSearch | None:
        """The search in native code, where there is some."""
        if self._search is None and loaded.code is not None:
            self._search = NativeSearch(self._tokens, self._suffixes, self.vocab_size)
        return self._search if loaded.code is not None else None

    def longest(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Match | None:
        """See ``Lookup``. A suffix occurs only where shorter ones do, so its length is found by bisection."""
        if (native := self._native) is not None:
            found = native.longest(context[-n_max:] if n_max > 0 else (), n_min)
            return Match(found[0], found[2], found[1]) if found else None
        query = self._query(context, n_max)
        best, low, high = None, max(n_min, 1), len(query) // self._width
        while low <= high:
            size = (low + high + 1) // 2
            suffix = query[len(query) - size * self._width :]
            begin = self._begin(suffix)
            if begin is None:
                high = size - 1
            else:
                best, low = (size, suffix, begin), size + 1
        return self._match(*best) if best else None

    def falling(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Iterator[Match]:
        """See ``Lookup``. Each match is looked up when it is asked for."""
        match = self.longest(context, n_max, n_min)
        if match is None:
            return
        yield match
        for size in range(match.length - 1, max(n_min, 1) - 1, -1):
            if (shorter := self.longest(context, size, size)) is None:
                return  # only in a damaged suffix array
            yield shorter

    def continuations(self, match: Match, length: int = 10, limit: int = 5000) -> Continuations:
        begin = int(match.where)
        if (native := self._native) is not None:
            rows = min(match.count, limit)
            columns, positions = native.rows(begin, match.count, match.length, rows, length)
            return Continuations.of(columns.T, positions, match)
        positions = self._suffixes[begin + spread(match.count, limit)].astype(np.int64) + match.length
        where = positions + np.arange(length)[:, None]  # column by column: the trie reads them so
        raw = self._tokens.take(where, mode="clip").byteswap(inplace=True)  # the last is a separator
        tokens, over = raw.astype(np.int32), raw >= self.vocab_size
        if over.any():
            tokens[np.logical_or.accumulate(over, axis=0)] = END
        return Continuations.of(tokens.T, positions, match)

    def _query(self, context: Sequence[int], n_max: int) -> bytes:
        """The last tokens as bytes, from after the last one that is not in the vocabulary."""
        tokens = [int(t) for t in context[-n_max:]] if n_max > 0 else []
        for i in range(len(tokens) - 1, -1, -1):
            if not 0 <= tokens[i] < self.vocab_size:
                tokens = tokens[i + 1 :]
                break
        return b"".join([t.to_bytes(self._width, "big") for t in tokens])

    def _begin(self, suffix: bytes) -> int | None:
        """Where in the suffix array the occurrences of ``suffix`` that have a token after them begin; None if there are
        none."""
        begin = self._at_least(suffix, 0)
        if begin == len(self._order):
            return None
        at, size = self._order[begin] * self._width, len(suffix)
        found = self._text[at : at + size + self._width]
        return begin if found[:size] == suffix and found[size:] != self._separator else None

    def _match(self, size: int, suffix: bytes, begin: int) -> Match:
        end = self._at_least(suffix + self._separator, begin)
        return Match(size, max(1, end - begin), begin)

    def _at_least(self, key: bytes, low: int) -> int:
        """Index of the first suffix from ``low`` on that is not below ``key``."""
        text, width, size = self._text, self._width, len(key)

        def head(position: int) -> bytes:
            position *= width
            return text[position : position + size]

        return bisect_left(self._order, key, low, key=head)
