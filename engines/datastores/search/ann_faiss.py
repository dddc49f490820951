"""faiss: partitions with 8-bit codes, where ScaNN has no wheel; candidates are ranked by the keys of the datastore.

Source: Douze et al. 2024, "The Faiss library" (IndexIVFScalarQuantizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engines.datastores.search.ann import Index, partitions

FILE = "faiss.index"
_SAMPLE = 64  # keys a partition is trained on


def library() -> str:
    """Version of the library."""
    from importlib.metadata import version

    return version("faiss-cpu")


def settings(keys: int) -> dict[str, int]:
    """Parameters by size: partitions, how many of them are searched, candidates that are scored by their keys."""
    leaves = max(1, min(round(2 * keys**0.5), keys // 40))
    return {"leaves": leaves, "search": max(8, leaves // 50), "wide": 50}


def build(keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
    """Make the index of keys float [n, d] and put its file into the folder."""
    import faiss

    keys = keys.astype(np.float32)
    index = faiss.index_factory(keys.shape[1], f"IVF{settings['leaves']},SQ8", faiss.METRIC_INNER_PRODUCT)
    wanted = min(len(keys), _SAMPLE * settings["leaves"])
    index.train(keys[np.sort(np.random.default_rng(0).choice(len(keys), wanted, replace=False))])
    index.add(keys)
    faiss.write_index(index, str(folder / FILE))


class Faiss(Index):
    """An index that ``build`` made.

    Args:
        keys: those of the datastore.
        folder: with the index's file.

    Raises:
        ValueError, RuntimeError: the file is not an index of these keys, or of another version.
    """

    backend = "faiss"

    def __init__(self, keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        import faiss

        super().__init__(keys)
        self._index = faiss.read_index(str(folder / FILE))
        if (self._index.ntotal, self._index.d) != keys.shape:
            raise ValueError(f"an index of {self._index.ntotal:,} keys for {len(keys):,}")
        faiss.omp_set_num_threads(1)  # for one query threads cost more than they bring
        self._parameters = faiss.SearchParametersIVF
        self._leaves, self._search = settings["leaves"], settings["search"]
        self.wide = settings["wide"]

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        """See ``Index``. More partitions than usual are searched only where those could hold too few candidates."""
        count = min(count, len(self))
        parameters = self._parameters(nprobe=partitions(self._leaves, self._search, count, len(self)))
        _, ids = self._index.search(query[None], count, params=parameters)
        return ids[0][(ids[0] >= 0) & (ids[0] < len(self))]


INDEX = Faiss
