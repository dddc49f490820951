"""Lookups in native code (``lookups.cpp``), where a model has loaded it: a search in a sparse datastore, the trie of
what was found, and what followed the nearest keys of a dense one. ``sparse``, ``trie`` and ``dense`` find the same
without it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from engines.model.native import loaded

_ANY, _COUNT = ctypes.c_void_p, ctypes.c_int64


class _Text(ctypes.Structure):
    """``Text`` of lookups.cpp."""

    _fields_ = [("bytes", _ANY), ("order", _ANY),
                *((name, _COUNT) for name in ("width", "tokens", "suffixes", "vocabulary"))]


class _Rows(ctypes.Structure):
    """``Rows`` of lookups.cpp."""

    _fields_ = [("tokens", _ANY), ("weights", _ANY),
                *((name, _COUNT) for name in ("rows", "width", "row_step", "step"))]


class NativeSearch:
    """A text of token ids with its suffix array.

    Args:
        text: big-endian uint16 or uint32 [tokens], separators included; ``order``: int32 [suffixes].
        vocabulary: larger token ids separate documents.
    """

    def __init__(self, text: np.ndarray, order: np.ndarray, vocabulary: int) -> None:
        order = np.ascontiguousarray(order, np.int32)
        self._held = text, order
        self._text = _Text(bytes=_at(text), order=_at(order), width=text.itemsize, tokens=len(text),
                           suffixes=len(order), vocabulary=vocabulary)
        self._address, self._found = ctypes.addressof(self._text), (_COUNT * 3)()

    def longest(self, query: Sequence[int], least: int) -> tuple[int, int, int] | None:
        """Of the suffixes of a query, of at least so many tokens, the longest that occurs with a token after it: its
        length, where its occurrences begin in the order, and how many there are."""
        size, found = len(query), self._found
        if not loaded.code.lookup_longest(self._address, (_COUNT * size)(*query), size, least, found):
            return None
        return found[0], found[1], max(1, found[2] - found[1])

    def rows(self, begin: int, count: int, matched: int, rows: int, length: int) -> tuple[np.ndarray, np.ndarray]:
        """What follows ``rows`` of the occurrences of a match, at equal strides: tokens int32 [length, rows], -1 from
        the end of a document on, and positions int64 [rows]."""
        tokens, positions = np.empty((length, rows), np.int32), np.empty(rows, np.int64)
        loaded.code.lookup_rows(self._address, begin, count, matched, rows, length, _at(tokens), _at(positions))
        return tokens, positions


class _Keys(ctypes.Structure):
    """``Keys`` of lookups.cpp."""

    _fields_ = [("values", _ANY), ("positions", _ANY), ("width", _COUNT)]


class NativeNear:
    """A text of token ids with keys.

    Args:
        text, vocabulary: as of ``NativeSearch``.
        keys: float16 [keys, d]; ``places``: uint32 [keys], of the token after each.
    """

    def __init__(self, text: np.ndarray, vocabulary: int, keys: np.ndarray, places: np.ndarray) -> None:
        self._held = text, keys, places
        self._text = _Text(bytes=_at(text), width=text.itemsize, tokens=len(text), vocabulary=vocabulary)
        self._keys = _Keys(values=_at(keys), positions=_at(places), width=keys.shape[1])

    def after(
        self, query: np.ndarray, some: np.ndarray, emitted: int | None, enough: int, rows: int, length: int,
        distinct: bool,
    ) -> tuple[tuple[np.ndarray, ...], int]:
        """What followed the nearest to a query float32 [d] of some keys, numbers int64 [n]: the arrays of
        ``dense.Neighbours``, of at most so many rows, and how many of the keys pass its filter; no rows where these are
        not ``enough``."""
        tokens, scores = np.empty((rows, length), np.int32), np.empty(rows, np.float32)
        positions, keys, counts = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int32)
        matching = _COUNT()
        query, some = np.ascontiguousarray(query, np.float32), np.ascontiguousarray(some, np.int64)
        count = loaded.code.lookup_near(
            ctypes.byref(self._text), ctypes.byref(self._keys), _at(query), _at(some), len(some),
            -1 if emitted is None else emitted, enough, rows, length, distinct, _at(tokens), _at(scores),
            _at(positions), _at(keys), _at(counts), ctypes.byref(matching))
        return tuple(array[:count] for array in (tokens, scores, positions, keys, counts)), matching.value


def heaviest(
    tokens: np.ndarray, weights: np.ndarray | None, nodes: int, least: Sequence[float]
) -> tuple[list[int], list[int], list[float], list[int], float]:
    """Tokens, parents, counts and rows of the heaviest nodes of the trie of sorted rows int32 [rows, length] with
    weights float64 [rows], and the weight of all; arguments and order as of ``trie.heaviest``."""
    (rows, width), (row_step, step) = tokens.shape, (stride // 4 for stride in tokens.strides)
    weights = None if weights is None else np.ascontiguousarray(weights, np.float64)
    given = _Rows(tokens=_at(tokens), weights=None if weights is None else _at(weights), rows=rows, width=width,
                  row_step=row_step, step=step)
    most = min(nodes, rows * width)
    out, counts, total = np.empty((3, most), np.int32), np.empty(most), ctypes.c_double()
    address = _at(out)
    count = loaded.code.lookup_trie(
        ctypes.byref(given), most, (ctypes.c_double * width)(*least), address, address + 4 * most, _at(counts),
        address + 8 * most, ctypes.byref(total))
    found, parents, at = out[:, :count].tolist()
    return found, parents, counts[:count].tolist(), at, total.value


def _at(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
