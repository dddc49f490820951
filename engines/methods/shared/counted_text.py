"""Texts in which the end of a context is looked up, and what followed it is counted.

The counts are those of a suffix trie over the texts, of the latest occurrences of each suffix, and the drafts those
that the trie would give; it is not built.
Kept are the positions after each token: one entry a token, and a lookup looks at the occurrences of the last one.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from engines.datastores.search.continuations import END  # stands between texts, before the first and after the last

DEPTH = 64
"""Most tokens of a match, and of what is drafted after it."""

_FEW = 96  # occurrences whose matches are measured all together
_SHALLOW = 4  # tokens of a match up to which that does not pay
_FEW_TOKENS = 24  # places that are followed together from their first token on
_SHORT = 12  # tokens of a match that are compared at first
_COUNTED = 160  # occurrences of a suffix that are counted, the latest


@dataclass(slots=True)
class Continued:
    """What followed the occurrences of a suffix: nodes of the trie, columns with one entry a node.

    Attributes:
        match: tokens of the suffix; ``hits``: its occurrences that were counted, those that something follows.
        tokens, parents: as of a draft tree.
        shares: of the node's occurrences among its parent's that go on; ``reach``: the product of these from the root.
        pieces: (node, place) of each stretch of nodes: that node and those up to the next stretch are a chain, and
            stand side by side from a place on, of several the last one.
    """

    match: int
    hits: int
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    reach: list[float] = field(default_factory=list)
    pieces: list[tuple[int, int]] = field(default_factory=list)

    def add(self, tokens: list[int], parent: int, share: float, reach: float, place: int) -> None:
        """Append a stretch of nodes below one, the first with this share, the others with all of it."""
        first, count = len(self.tokens), len(tokens)
        self.pieces.append((first, place))
        self.tokens += tokens
        self.parents += [parent, *range(first, first + count - 1)]
        self.shares += [share] + [1.0] * (count - 1)
        self.reach += [reach] * count


class CountedText:
    """Texts that grow. ``begins`` has the place of each one's first token."""

    def __init__(self) -> None:
        self._tokens = np.full(4 * DEPTH + 1024, END, np.int32)
        self._size = DEPTH  # a margin, so that what lies before a place can always be looked at
        self._after: dict[int, array] = {}
        self.begins = [DEPTH]

    def __len__(self) -> int:
        return self._size - DEPTH

    @property
    def last(self) -> int:
        """Tokens of the last text so far."""
        return self._size - self.begins[-1]

    def begin(self) -> None:
        """End the last text, and begin another."""
        if self.last:
            self._after[int(self._tokens[self._size - 1])].pop()  # nothing will follow it
            self._size += 1
            self.begins.append(self._size)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the last text."""
        size = self._size
        if size + len(tokens) + 2 * DEPTH > len(self._tokens):
            more = np.full(len(self._tokens) + len(tokens), END, np.int32)
            self._tokens = np.concatenate([self._tokens, more])
        self._tokens[size : size + len(tokens)] = tokens
        after = self._after
        for place, token in enumerate(tokens, size + 1):
            if token in after:
                after[token].append(place)
            else:
                after[token] = array("i", (place,))
        self._size += len(tokens)

    def text_of(self, place: int) -> tuple[int, int]:
        """The number of the text that holds a place, and the index in it."""
        number = bisect_right(self.begins, place) - 1
        return number, place - self.begins[number]

    def suffixes(self, context: Sequence[int], depth: int) -> Iterator[tuple[int, np.ndarray]]:
        """Lengths of suffixes of the context that occur with a token after them, the longest first, at most ``depth``;
        each with the places after its occurrences, int32, ascending. Shorter suffixes that occur in the same places
        are left out."""
        places = np.array(self._after.get(context[-1], ()) if len(context) else (), np.int32)
        if len(places) and places[-1] == self._size:  # the end of the last text
            places = places[:-1]
        depth = min(depth, len(context))
        wider: list[np.ndarray] = []
        one_by_one = depth <= _SHALLOW
        while len(wider) + 1 < depth and (one_by_one or len(places) > _FEW):
            size = len(wider) + 2
            narrower = places[self._tokens[places - size] == context[-size]]
            if not len(narrower):
                depth = size - 1
                break
            wider.append(places)
            places = narrower
        if len(places):
            yield from self._measured(places, context, len(wider) + 1, depth)
        found = len(places)
        for size in range(len(wider), 0, -1):
            if len(wider[size - 1]) > found:
                found = len(wider[size - 1])
                yield size, wider[size - 1]

    def _measured(
        self, places: np.ndarray, context: Sequence[int], least: int, depth: int
    ) -> Iterator[tuple[int, np.ndarray]]:
        """The same for places that are known to match ``least`` tokens."""
        if len(places) > _FEW or least == depth:
            yield least, places
            return
        tail = np.array(context[: -depth - 1 : -1], np.int32)
        lengths = self._lengths(places, tail[:_SHORT])
        if depth > _SHORT and (longer := lengths == _SHORT).any():
            lengths[longer] = self._lengths(places[longer], tail)
        for length in sorted(set(lengths.tolist()), reverse=True):
            yield length, places[lengths >= length]

    def _lengths(self, places: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """How many tokens before each of the places are those of a tail, the last first."""
        before = self._tokens[places[:, None] - np.arange(1, len(tail) + 1, dtype=np.int32)]
        unequal = before != tail
        first = unequal.argmax(1)
        return np.where(unequal[np.arange(len(places)), first], first, len(tail))

    def after(
        self, match: int, places: np.ndarray, nodes: int, min_reach: float, chain: bool, beat: float = 0.0,
        ends: frozenset[int] = frozenset(),
    ) -> Continued:
        """What followed these places, as at most ``nodes`` nodes of the trie, the most probable first; none deeper than
        ``DEPTH``, nor with a ``reach`` below ``min_reach``. ``chain``: always on to the most frequent token. Of equally
        frequent tokens the one that occurred last comes first. Where the ``reach`` of all cannot sum to more than
        ``beat``, some of the nodes are left out. Nothing follows a token of ``ends``."""
        if len(places) == 1:
            return self._only(match, int(places[0]), nodes, ends)
        places = places[-_COUNTED:][::-1]
        found, width = Continued(match, len(places)), min(nodes, DEPTH)
        open_: list[tuple[float, int, _Branch]] = [(-1.0, 0, _Branch(-1, 0, 1.0, places))]
        number, score = 0, 0.0  # the number breaks ties: what came first
        while open_ and (room := nodes - len(found.tokens)) > 0:
            lost, _, branch = heapq.heappop(open_)
            if score - lost * room <= beat:  # no other node is reached more often
                break
            column, parent, here = branch.column, branch.parent, branch.rows or branch.where()
            if len(here) <= _FEW_TOKENS:
                rows = branch.rows or self._rows(here, width)
                place, (below, agreed) = rows[0][-1], _agreed(rows, column, width)
            else:
                rows, place = None, int(here[0])
                below, agreed = self._on(here, column, width)
            agreed = agreed[:room]
            if not ends.isdisjoint(agreed):
                agreed, below = _up_to(ends, agreed), ()
            if agreed:
                found.add(agreed, parent, branch.share, -lost, place + column)
                parent = len(found.tokens) - 1
                score -= lost * len(agreed)
            if not len(below):
                continue
            column += len(agreed)
            counts = Counter(below.tolist()) if rows is None else {token: len(same) for token, same in below.items()}
            going = len(here) - counts.pop(END, 0)
            for token, count in sorted(counts.items(), key=itemgetter(1), reverse=True)[: 1 if chain else None]:
                share = count / going
                if -lost * share < min_reach:
                    break
                number += 1
                further = (here, below, token) if rows is None else (None, None, token, below[token])
                heapq.heappush(open_, (lost * share, number, _Branch(parent, column, share, *further)))
        return found

    def after_places(self, places: np.ndarray, width: int) -> np.ndarray:
        """So many tokens from each of these places on, at most ``DEPTH``: int32 [places, width]."""
        return self._tokens[places[:, None] + np.arange(width, dtype=np.int32)]

    def _rows(self, places: np.ndarray, width: int) -> list[list[int]]:
        """So many tokens after each of these places, and the place itself."""
        rows = self.after_places(places, width).tolist()
        for row, place in zip(rows, places.tolist()):
            row.append(place)
        return rows

    def _on(self, here: np.ndarray, column: int, width: int) -> tuple[np.ndarray, list[int]]:
        """Of the texts from so many tokens after many places on: the column in which they part (empty: there is none),
        and the tokens before it."""
        if not column:  # they mostly part at once
            heads = self._tokens[here]
            if (heads != heads[0]).any():
                return heads, []
        rows = self._tokens[here[:, None] + np.arange(column, width, dtype=np.int32)]
        first = rows[0].tolist()
        unequal = (rows != rows[0]).any(0)
        part = int(unequal.argmax()) if unequal.any() else len(first)
        if END in first[:part]:
            return rows[:0, 0], first[: first.index(END)]
        return rows[:, part] if part < len(first) else rows[:0, :0].ravel(), first[:part]

    def _only(self, match: int, place: int, nodes: int, ends: frozenset[int]) -> Continued:
        """The same for a single place."""
        found = Continued(match, 1)
        tokens = self._tokens[place : place + min(nodes, DEPTH)].tolist()
        tokens = tokens[: tokens.index(END)] if END in tokens else tokens
        if tokens:
            tokens = tokens if ends.isdisjoint(tokens) else _up_to(ends, tokens)
            found.add(tokens, -1, 1.0, 1.0, place)
        return found


def _up_to(ends: frozenset[int], tokens: list[int]) -> list[int]:
    """Tokens up to the first one that is in ``ends``, that one included; there must be one."""
    return tokens[: 1 + min(tokens.index(end) for end in ends.intersection(tokens))]


class _Branch(NamedTuple):
    """Nodes to come below a parent, so many tokens after some places: those where ``heads`` has the token; of a few
    places their ``rows``."""

    parent: int
    column: int
    share: float
    places: np.ndarray | None
    heads: np.ndarray | None = None
    token: int = END
    rows: list[list[int]] | None = None

    def where(self) -> np.ndarray:
        return self.places if self.heads is None else self.places[self.heads == self.token]


def _agreed(rows: list[list[int]], column: int, width: int) -> tuple[dict[int, list[list[int]]], list[int]]:
    """The rows from a column on: by token those of the column in which they part (empty: there is none), and the tokens
    before it. Arrays would take longer for a few."""
    first, part = rows[0], width
    if len(rows) > 1:
        low, high, part = min(rows), max(rows), column
        while part < width and low[part] == high[part]:
            part += 1
    agreed = first[column:part]
    if END in agreed:
        return {}, agreed[: agreed.index(END)]
    below: dict[int, list[list[int]]] = {}
    if part < width:
        for row in rows:
            below.setdefault(row[part], []).append(row)
    return below, agreed
