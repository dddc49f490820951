"""How good the index of a dense datastore is: recall against exact search, and the paper's mean reciprocal rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engines.datastores.building.progress import Progress, Reporter, no_progress
from engines.datastores.search.ann import ExactIndex
from engines.datastores.search.dense import DenseStore

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
        progress: told of each batch; what it raises leaves this function.

    Returns:
        None where nothing was held out (fewer than 100 keys).
    """
    queries = np.asarray(store.held_out if queries is None else queries, np.float32)
    k = min(k, len(store))
    if not len(queries):
        return None
    exact, found, report = ExactIndex(store.keys), 0, Reporter("recall", "queries", progress)
    for start in range(0, len(queries), _BATCH):
        report.at(start, len(queries))
        batch = queries[start : start + _BATCH]
        _, wanted = exact.search_batch(batch, k)
        _, scores = store.index.search_batch(batch, k)
        found += int((scores >= wanted[:, -1:] - _SAME * np.maximum(1, np.abs(wanted[:, -1:]))).sum())
    report.at(len(queries), len(queries))
    return Recall(found / (k * len(queries)), k, len(queries))


def mean_reciprocal_rank(
    store: DenseStore, sample: int = 1000, depth: int = 100, seed: int = 0, progress: Progress = no_progress
) -> float:
    """Stored keys, queried through the index: the mean of one over the rank of itself (the paper's equation 4).

    Equal keys are ranked by their number, so that duplicates lower the mean, as in the paper.

    Args:
        sample: keys drawn at random, or all if there are no more.
        depth: ranks looked at; a key that is not among them counts 0.
    """
    some = np.sort(np.random.default_rng(seed).choice(len(store), min(sample, len(store)), replace=False))
    total, report = 0.0, Reporter("reciprocal rank", "queries", progress)
    for done, number in enumerate(some):
        if done % _BATCH == 0:
            report.at(done, len(some))
        ids, _ = store.index.search(store.keys[number].astype(np.float32), depth)
        rank = np.flatnonzero(ids == number)
        total += 1 / (1 + int(rank[0])) if len(rank) else 0
    report.at(len(some), len(some))
    return total / len(some)
