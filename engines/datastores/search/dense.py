"""The dense part of a datastore: what followed the hidden states nearest to a given one (DReSD, sections 3.1 to 3.6).

The key of a token is its hidden state, reduced; it leads to the position of the token after it, so that drafts of any
length can be read there, up to the end of the document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.datastores.search.ann import ExactIndex, Index, IndexDescription
from engines.datastores.search.continuations import END
from engines.datastores.search.indexing import open_index
from engines.datastores.search.native_lookups import NativeNear
from engines.datastores.search.reduction import Recipe, Reduction
from engines.datastores.search.sparse import token_dtype
from engines.datastores.storage.datastore import Documents, Store
from engines.datastores.storage.manifest import damaged
from engines.errors import UsageProblem
from engines.model.native import loaded
from engines.progress import Progress, ProgressReporter, no_progress
from engines.report import encoding

_ARRAYS = ("mean", "deviation", "components", "explained")  # of the reduction
_WIDER = (1, 4)  # times the usual number of candidates, until enough begin with the emitted token


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What followed the nearest keys, the nearest first; no two rows have the same tokens, if they are to be distinct.

    Attributes:
        tokens: int32 [rows, length], ``continuations.END`` from the end of a document on; no row is empty.
        scores: float32 [rows], dot products: cosines, where keys have unit length.
        positions: int64 [rows], the position in the datastore of each row's first token.
        keys: int64 [rows], number of the key that led there.
        counts: int32 [rows], neighbours considered that went on like this one, itself included; 1 where rows need not
            be distinct.
        candidates, matching: neighbours that were scored, and how many of them begin with the emitted token.
    """

    tokens: np.ndarray
    scores: np.ndarray
    positions: np.ndarray
    keys: np.ndarray
    counts: np.ndarray
    candidates: int
    matching: int

    def __len__(self) -> int:
        return len(self.keys)


class DenseStore:
    """The dense part of a datastore.

    Arrays: ``keys`` float16 [keys, d]; ``key_positions`` int32 [keys], of the token after each; ``held_out`` float16
    [m, d], keys that were left out to measure with; the reduction's. The index lies in its folder.

    Args:
        store: of kind dense or both.
        fraction: share of it that is searched, its first documents (``Documents.first``): without the index, which is
            of all keys, by comparing every key.

    Attributes:
        sizes: bytes on the disk, by file, in proportion to what is searched.
        index: finds the nearest keys.
        remark: a sentence that says why the index that was built is not used; "" if it is.

    Raises:
        DatastoreProblem: it has no dense part, or arrays that don't fit together.
    """

    def __init__(self, store: Store, fraction: float = 1.0) -> None:
        facts = store.manifest
        self.store, self.name, self.vocab_size = store, store.name, facts.vocab_size
        self.documents = Documents(store)
        self.tokens = store.array("tokens", token_dtype(facts.vocab_size))
        self.keys = store.array("keys", "<f2", ndim=2)
        self.held_out = store.array("held_out", "<f2", ndim=2)
        self.positions = store.array("key_positions", "<i4")
        self.recipe, description = _parameters(store)
        self.reduction = _reduction(store, self.recipe)
        width = self.reduction.width
        fits = len(self.keys) == len(self.positions) == facts.keys > 0
        self._text = self.tokens.view(self.tokens.dtype.newbyteorder("="))
        self._positions = self.positions.view("<u4")  # negative ones of a damaged array are beyond the end
        if not fits or {self.keys.shape[1], self.held_out.shape[1]} != {width}:
            raise damaged(store.folder, "the arrays of its dense part don't fit together")
        self._native: NativeNear | None = None
        self.index: Index
        end = self.documents.first(fraction)
        self.sizes = store.sizes("dense", end / len(self.tokens))
        if end < len(self.tokens):
            self.keys = self.keys[: max(1, int(np.searchsorted(self.positions, np.int32(end))))]
            self.index, self.remark = ExactIndex(self.keys), ""
        else:
            self.index, self.remark = open_index(self.keys, store.folder, description, facts.files)

    def __len__(self) -> int:
        return len(self.keys)

    def query(
        self, hidden: np.ndarray, emitted: int | None, drafts: int = 10, length: int = 10, distinct: bool = True,
        neighbours: int = 0,
    ) -> Neighbours:
        """What to draft after the token just emitted.

        Args:
            hidden: float [H], the last hidden state of the row that produced it.
            emitted: that token: neighbours that went on otherwise are left out, of the others what follows it is
                returned (the paper's filter). None takes all neighbours, with the token after their key.
            drafts: rows at most. Where too few of the nearest neighbours pass the filter, more are looked at, once.
            length: tokens of each at most.
            distinct: of neighbours that go on alike the nearest is taken, and counts for all of them. The paper takes
                the nearest as they are.
            neighbours: so many of the nearest are looked at before the filter, and no more (the authors' 50); 0: as
                many as the index scores anyway, and more once where too few pass.

        Raises:
            RunFailed: a hidden state that is not finite, or of another width.
        """
        return self.nearest(self.reduction.one(hidden), emitted, drafts, length, distinct, neighbours)

    def nearest(
        self, key: np.ndarray, emitted: int | None, drafts: int = 10, length: int = 10, distinct: bool = True,
        neighbours: int = 0,
    ) -> Neighbours:
        """``query`` by a key float32 [d]."""
        for wider in _WIDER:
            wanted = neighbours or wider * max(self.index.wide, 4 * drafts)
            found = self.index.search(key, neighbours)[0] if neighbours else self.index.candidates(key, wanted)
            enough = 0 if neighbours or wider == _WIDER[-1] or len(found) < wanted else drafts
            near = self._near(key, found, emitted, enough, drafts, length, distinct)
            if near.matching >= enough:
                break
        return near

    def _near(
        self, key: np.ndarray, found: np.ndarray, emitted: int | None, enough: int, drafts: int, length: int,
        distinct: bool,
    ) -> Neighbours:
        """``nearest`` of some keys, by number; it may be without rows where fewer than ``enough`` pass the filter."""
        if loaded.code is not None:
            if self._native is None:
                self._native = NativeNear(self._text, self.vocab_size, self.keys, self._positions)
            arrays, matching = self._native.after(key, found, emitted, enough, drafts, length, distinct)
            return Neighbours(*arrays, len(found), matching)
        ids, firsts = self._filtered(found, emitted)
        scores = self.index.scores(key, ids)
        order = np.lexsort((ids, -scores))
        chosen = order if distinct else order[:drafts]
        tokens, counts = self._after(firsts[chosen], length), np.ones(len(chosen), np.int32)
        if distinct:
            rows, counts = _first_of_each(tokens, drafts)
            chosen, tokens = chosen[rows], tokens[rows]
        return Neighbours(
            tokens, scores[chosen], firsts[chosen].astype(np.int64), ids[chosen], counts, len(found), len(ids)
        )

    def _filtered(self, ids: np.ndarray, emitted: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Keys that pass the filter and have something to draft, and the position of its first token."""
        last = len(self._text) - 1  # a separator; bounds hold in damaged arrays too
        firsts = np.minimum(self._positions.take(ids), last)
        if emitted is not None:
            keep = np.flatnonzero(self._tokens_at(firsts) == emitted)
            ids, firsts = ids[keep], np.minimum(firsts[keep] + 1, last)
        keep = np.flatnonzero(self._tokens_at(firsts) < self.vocab_size)
        return ids[keep], firsts[keep]

    def _tokens_at(self, positions: np.ndarray) -> np.ndarray:
        return self._text.take(positions).byteswap()

    def _after(self, firsts: np.ndarray, length: int) -> np.ndarray:
        """The tokens from these positions on, int32 [positions, length]."""
        where = np.minimum(firsts[:, None] + np.arange(length), len(self._text) - 1)
        found = self._tokens_at(where)
        tokens, ended = found.astype(np.int32), found >= self.vocab_size
        if ended.any():
            tokens[np.logical_or.accumulate(ended, axis=1)] = END
        return tokens


def _first_of_each(tokens: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Of equal rows the first, at most so many: int64 [rows]; and how many are like it, int32 [rows]."""
    begins, counts = {}, {}
    for row, line in enumerate(tokens.view(f"V{tokens.itemsize * tokens.shape[1]}")[:, 0].tolist()):
        begins.setdefault(line, row)
        counts[line] = counts.get(line, 0) + 1
    return np.array(list(begins.values())[:most], np.int64), np.array(list(counts.values())[:most], np.int32)


def _parameters(store: Store) -> tuple[Recipe, IndexDescription]:
    """How the dense part was made. Raises DatastoreProblem."""
    try:
        record = store.manifest.parameters["dense"]
        return encoding.build(Recipe, record), encoding.build(IndexDescription, record["index"])
    except (KeyError, TypeError, ValueError, UsageProblem):
        raise damaged(store.folder, "its manifest does not say how its dense part was made") from None


def _reduction(store: Store, recipe: Recipe) -> Reduction:
    """The map from hidden states to keys. Raises DatastoreProblem."""
    arrays = {name: store.array(name, "<f4", 1 + (name == "components")) for name in _ARRAYS if store.has(name)}
    width, dims = store.manifest.model.width, recipe.width(store.manifest.model.width)
    shapes = {"mean": (width,), "deviation": (width,)}
    if recipe.dims:
        shapes |= {"components": (width, dims), "explained": (dims,)}
    if {name: array.shape for name, array in arrays.items()} != shapes:
        raise damaged(store.folder, "the arrays of its PCA don't fit together")
    if not (arrays["deviation"] > 0).all():
        raise damaged(store.folder, "the arrays of its PCA hold impossible values")
    return Reduction.of(recipe, arrays)


_SAME = 1e-5  # dot products that differ by less are of equal keys
_BATCH = 64


@dataclass(frozen=True, slots=True)
class Recall:
    """Of the ``k`` nearest keys, the share that the index finds.

    Attributes:
        value: in 0..1; a key as near as the k-th counts as one of them, whichever of the equals it is.
        k, queries: neighbours of each query, queries.
    """

    value: float
    k: int
    queries: int


def recall(
    store: DenseStore, k: int = 10, queries: np.ndarray | None = None, progress: Progress = no_progress
) -> Recall | None:
    """Recall@k of the index against exact search.

    Args:
        queries: keys [m, d]; None takes those that the build held out.
        progress: gets each batch; what it raises leaves this function.

    Returns:
        None if nothing was held out (fewer than 100 keys).
    """
    queries = np.asarray(store.held_out if queries is None else queries, np.float32)
    k = min(k, len(store))
    if not len(queries):
        return None
    exact, found, reporter = ExactIndex(store.keys), 0, ProgressReporter("recall", "queries", progress)
    for start in range(0, len(queries), _BATCH):
        reporter.report(start, len(queries))
        batch = queries[start : start + _BATCH]
        _, wanted = exact.search_batch(batch, k)
        _, scores = store.index.search_batch(batch, k)
        found += int((scores >= wanted[:, -1:] - _SAME * np.maximum(1, np.abs(wanted[:, -1:]))).sum())
    reporter.report(len(queries), len(queries))
    return Recall(found / (k * len(queries)), k, len(queries))


def mean_reciprocal_rank(
    store: DenseStore, sample: int = 1000, depth: int = 50, seed: int = 0, progress: Progress = no_progress
) -> float:
    """Stored keys, queried through the index: the mean of one over the rank of itself (the paper's equation 4).

    Equal keys are ranked by their number, so that duplicates lower the mean, as in the paper.

    Args:
        sample: keys drawn at random, or all if there are no more.
        depth: ranks looked at, as many as the authors look at; a key that is not among them counts 0.
    """
    some = np.sort(np.random.default_rng(seed).choice(len(store), min(sample, len(store)), replace=False))
    total, reporter = 0.0, ProgressReporter("reciprocal rank", "queries", progress)
    for done, number in enumerate(some):
        if done % _BATCH == 0:
            reporter.report(done, len(some))
        ids, _ = store.index.search(store.keys[number].astype(np.float32), depth)
        rank = np.flatnonzero(ids == number)
        total += 1 / (1 + int(rank[0])) if len(rank) else 0
    reporter.report(len(some), len(some))
    return total / len(some)
