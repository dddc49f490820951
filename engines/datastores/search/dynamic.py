"""A growing store: the conversation itself, searched like a datastore."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np

from engines.datastores.search.continuations import END, Continuations, Match, in_order, spread


class DynamicStore:
    """One growing sequence of tokens (a ``continuations.Lookup``); a position is an index into it.

    For each token it keeps the positions after its occurrences, so a token costs one entry, and the time of a lookup
    grows with the occurrences of the last token. The end of the sequence has nothing after it and does not count.
    """

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self._size

    def clear(self) -> None:
        self._tokens = np.zeros(1024, np.int32)
        self._after: dict[int, array] = {}
        self._size = 0

    def extend(self, tokens: Sequence[int]) -> None:
        begin, end = self._size, self._size + len(tokens)
        while end > len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
        self._tokens[begin:end] = tokens
        self._size = end
        for at in range(max(begin, 1), end):
            self._after.setdefault(int(self._tokens[at - 1]), array("i")).append(at)

    def longest(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Match | None:
        return next(self.falling(context, n_max, n_min), None)

    def falling(self, context: Sequence[int], n_max: int = 16, n_min: int = 2) -> Iterator[Match]:
        if not len(context) or n_max < 1 or context[-1] not in self._after:
            return
        levels = [np.array(self._after[context[-1]], np.int64)]
        for size in range(2, min(n_max, len(context)) + 1):
            ends = levels[-1][levels[-1] >= size]
            ends = ends[self._tokens[ends - size] == context[-size]]
            if not len(ends):
                break
            levels.append(ends)
        for size in range(len(levels), max(n_min, 1) - 1, -1):
            yield Match(size, len(levels[size - 1]), levels[size - 1])

    def continuations(self, match: Match, length: int = 10, limit: int = 5000) -> Continuations:
        """See ``Lookup``; strides are taken over the occurrences from first to last."""
        positions = match.where[spread(match.count, limit)]
        where = positions[:, None] + np.arange(length)
        tokens = np.where(where < self._size, self._tokens[np.minimum(where, self._size - 1)], END)
        order = in_order(tokens)
        return Continuations.of(tokens[order], positions[order], match)
