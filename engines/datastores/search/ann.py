"""Nearest neighbours of a query among keys, by dot product: one interface, several back ends.

An index proposes candidates, which are always scored and ranked by the keys themselves. So a bad index misses
neighbours, but never gives a wrong score. Exact search needs no index: it is used for few keys, as the reference for
all other back ends, and if an index cannot be opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import ClassVar

import numpy as np

from engines.errors import UsageProblem

BACKENDS = ("auto", "scann", "faiss", "exact")
FEW = 5_000  # keys up to which exact search is about as fast as an index
_COPY = 64 << 20  # bytes of a float32 copy of the keys that exact search keeps
_BLOCK = 1 << 15
_LONGEST = 300  # characters of a remark


class Index:
    """Keys and how their nearest are found. ``keys``: float16 [n, d], memory-mapped or not."""

    backend: ClassVar[str] = ""
    wide = 150  # fewest candidates that are scored

    def __init__(self, keys: np.ndarray) -> None:
        self.keys = keys

    def __len__(self) -> int:
        return len(self.keys)

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        """Numbers int64 of up to ``count`` keys that are likely the nearest, each once, in any order."""
        raise NotImplementedError

    def scores(self, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
        """Dot products float32 [n] of a query float32 [d] with keys, by number int64 [n]; equal for equal keys."""
        return np.einsum("nd,d->n", self.keys.take(ids, axis=0).astype(np.float32), query)

    def search(self, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The nearest keys of a query float32 [d], best first.

        Returns:
            int64 numbers and float32 dot products, at most ``k`` of each; equal ones in order of their numbers.
        """
        ids = self.candidates(query, max(k, self.wide))
        return best(ids, self.scores(query, ids), k)

    def search_batch(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """``search`` for queries [m, d]: numbers and scores [m, k], -1 and -inf where there are fewer."""
        numbers = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        for row, query in enumerate(queries):
            ids, found = self.search(query, k)
            numbers[row, : len(ids)], scores[row, : len(ids)] = ids, found
        return numbers, scores


class ExactIndex(Index):
    """Scores every key in float32, from a copy in memory if there are few, else block by block."""

    backend = "exact"

    def __init__(self, keys: np.ndarray) -> None:
        super().__init__(keys)
        small = keys.size * 4 <= _COPY
        self._copies = [keys.astype(np.float32)] if small else None

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        return largest(self._all(query), count)

    def search(self, query: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        ids = self.candidates(query, k)
        return best(ids, self.scores(query, ids), k)

    def _all(self, query: np.ndarray) -> np.ndarray:
        return np.concatenate([product(block, query) for _, block in self._blocks()])

    def search_batch(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """See ``Index``: the keys are read once for all queries."""
        k_found = min(k, len(self))
        ids = np.empty((len(queries), 0), np.int64)
        scores = np.empty((len(queries), 0), np.float32)
        for start, block in self._blocks():
            found = queries @ block.T
            top = np.stack([largest(row, k_found) for row in found]) if len(found) else np.empty((0, 0), np.int64)
            scores = np.concatenate([scores, np.take_along_axis(found, top, 1)], axis=1)
            ids = np.concatenate([ids, top + start], axis=1)
            keep = np.lexsort((ids, -scores))[:, :k_found]
            ids, scores = np.take_along_axis(ids, keep, 1), np.take_along_axis(scores, keep, 1)
        missing = ((0, 0), (0, k - ids.shape[1]))
        return np.pad(ids, missing, constant_values=-1), np.pad(scores, missing, constant_values=-np.inf)

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        if self._copies:
            yield 0, self._copies[0]
            return
        for start in range(0, len(self), _BLOCK):
            yield start, self.keys[start : start + _BLOCK].astype(np.float32)


def largest(scores: np.ndarray, k: int, groups: int = 16) -> np.ndarray:
    """Where the ``k`` largest of float [n] are, int64, in no order; of equal ones, any.

    They lie in the k groups with the largest maxima, which are quicker to find than they are.
    """
    n = len(scores)
    columns = n // groups
    if k >= n:
        return np.arange(n)
    if columns <= 4 * k:
        return np.argpartition(scores, n - k)[n - k :]
    whole = scores[: columns * groups].reshape(groups, columns)
    chosen = np.argpartition(whole.max(0), columns - k)[columns - k :]
    rest = np.arange(columns * groups, n)
    ids = np.concatenate([(chosen + columns * np.arange(groups)[:, None]).ravel(), rest])
    return ids[np.argpartition(scores[ids], len(ids) - k)[len(ids) - k :]]


def best(ids: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The ``k`` best of some keys, best first, equal ones by number."""
    if len(ids) > k:
        some = np.argpartition(scores, len(ids) - k)[len(ids) - k :]
        ids, scores = ids[some], scores[some]
    order = np.lexsort((ids, -scores))
    return ids[order], scores[order]


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """How an index was made, as the manifest keeps it.

    Attributes:
        backend: scann, faiss or exact.
        version: of the library that wrote it; "" for exact search.
        settings: numbers by name, of the back end.
        remark: a sentence that says why it is not the one asked for; "" if it is. Untrusted.

    Raises:
        ValueError: no index is described so.
    """

    backend: str
    version: str
    settings: dict[str, int]
    remark: str = ""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS[1:]:
            raise ValueError("this does not describe an index")
        if not all(0 <= n < 1 << 31 for n in self.settings.values()):
            raise ValueError("the settings of the index are out of range")
        if max(len(self.version), len(self.remark)) > _LONGEST:
            raise ValueError("the remark of the index is too long")


def installed(backend: str) -> bool:
    """Whether this back end can be used here."""
    return backend == "exact" or find_spec(backend) is not None


def choose(backend: str, keys: int) -> str:
    """The back end for so many keys; "auto" takes exact search for few, then the first of the others that is there.
    Raises UsageProblem: there is none of this name, or it is not installed."""
    if backend not in BACKENDS:
        raise UsageProblem(f"there is no index {backend!r}", f"choose one of {', '.join(BACKENDS)}")
    if backend == "auto":
        return "exact" if keys <= FEW else next(b for b in ("scann", "faiss", "exact") if installed(b))
    if not installed(backend):
        package = "faiss-cpu" if backend == "faiss" else backend
        raise UsageProblem(f"{package} is not installed", f"pip install {package}, or use index=auto")
    return backend


_ALONE = 1 << 18  # elements; OpenBLAS takes more threads from 460,800 on


def product(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Dot products float32 [n] of rows float32 [n, d] with a vector float32 [d], part by part."""
    part = max(1, _ALONE // max(1, len(vector)))
    if len(rows) <= part:
        return rows @ vector
    out = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), part):
        np.dot(rows[start : start + part], vector, out=out[start : start + part])
    return out
