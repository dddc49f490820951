"""The libraries that find nearest neighbours: ScaNN, and faiss where ScaNN has no wheel.

Both only propose candidates, which are ranked by the keys of the datastore, so an index holds no second copy of them
(36 bytes a key with ScaNN). ScaNN makes a tree of partitions with asymmetric hashing in them, faiss partitions with
8-bit codes. ScaNN's own loader is not used: it would unpickle a file of document names if there were one.

Sources: Guo et al. 2020, "Accelerating Large-Scale Inference with Anisotropic Vector Quantization"; Douze et al. 2024,
"The Faiss library" (IndexIVFScalarQuantizer). The settings of ScaNN began as those in the code of DReSD's authors (5
sqrt(n) leaves, 250 of them searched, 250 keys scored anew, threshold 0.2; their paper names none), with fewer leaves
and keys, since there are fewer keys here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from engines.datastores.search.ann import Index
from engines.folders import read_file

_FLAT = 20_000  # keys up to which all hashes are scored, without a tree
_ASSETS = "scann_assets.pbtxt"
_ASSET = re.compile(r'\s*assets \{\s*asset_type: [A-Z_0-9]+\s*asset_path: "[a-z_0-9]+\.(?:pb|npy)"\s*\}\s*')
_THRESHOLD = 0.2  # of anisotropic quantisation
_ONE_THREAD = 2_000_000  # keys up to which one thread builds it: the same keys give the same index
_FAISS_FILE = "faiss.index"
_FAISS_SAMPLE = 64  # keys a partition is trained on


class LibraryIndex(Index):
    """An index that ``build`` made.

    Args:
        keys: those of the datastore.
        folder: with the index's files.
        settings: of the build.

    Attributes:
        package: whose version the manifest notes.

    Raises:
        ValueError, RuntimeError: the files are not an index of these keys, or of another version.
    """

    package = ""

    def __init__(self, keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        super().__init__(keys)
        self.wide, self._leaves, self._search = settings["wide"], settings["leaves"], settings["search"]
        size = self._open(folder)
        if size != len(keys):
            raise ValueError(f"an index of {size:,} keys for {len(keys):,}")

    def _open(self, folder: Path) -> int:
        """Opens the files; returns the number of keys."""
        raise NotImplementedError

    def partitions(self, count: int) -> int:
        """How many partitions to search for so many candidates: as usual, or enough to hold twice as many keys."""
        return min(self._leaves, max(self._search, -(-2 * count * self._leaves // len(self))))

    @classmethod
    def version(cls) -> str:
        """Version of the library."""
        return version(cls.package)

    @staticmethod
    def settings(keys: int) -> dict[str, int]:
        """Parameters by size: partitions, how many of them are searched, candidates that are scored by their keys."""
        raise NotImplementedError

    @staticmethod
    def build(keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        """Make the index of keys float [n, d] and put its files into the folder."""
        raise NotImplementedError


class Scann(LibraryIndex):
    """ScaNN, without its own reordering."""

    backend = package = "scann"

    def _open(self, folder: Path) -> int:
        from scann.scann_ops.py.scann_ops_pybind import scann_pybind

        assets = read_file(folder / _ASSETS).decode()
        if _ASSET.sub("", assets):  # what is named there is opened: nothing outside the folder
            raise ValueError(f"{_ASSETS} is not as ScaNN writes it")
        self._searcher = scann_pybind.ScannNumpy(str(folder), assets)
        return self._searcher.size()

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        count = min(count, len(self))
        ids, _ = self._searcher.search(query, count, count, self.partitions(count) or -1)
        ids = ids.astype(np.int64)
        return ids[ids < len(self)]

    @staticmethod
    def settings(keys: int) -> dict[str, int]:
        if keys <= _FLAT:
            return {"leaves": 0, "search": 0, "wide": 100}
        leaves = round(keys**0.5)
        return {"leaves": leaves, "search": max(12, leaves // 40), "wide": 150}

    @staticmethod
    def build(keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        from scann import scann_ops_pybind

        count = len(keys)
        builder = scann_ops_pybind.builder(keys.astype(np.float32), settings["wide"], "dot_product")
        if settings["leaves"]:
            sample = min(count, max(100_000, 50 * settings["leaves"]))
            builder = builder.tree(settings["leaves"], settings["search"], training_sample_size=sample)
        builder = builder.score_ah(2, anisotropic_quantization_threshold=_THRESHOLD)
        builder.set_n_training_threads(1 if count <= _ONE_THREAD else 0).build().serialize(
            str(folder), relative_path=True
        )


class Faiss(LibraryIndex):
    """faiss's IVF with 8-bit codes."""

    backend, package = "faiss", "faiss-cpu"

    def _open(self, folder: Path) -> int:
        import faiss

        self._index = faiss.read_index(str(folder / _FAISS_FILE))
        if self._index.d != self.keys.shape[1]:
            raise ValueError(f"an index of {self._index.d} dimensions for {self.keys.shape[1]}")
        faiss.omp_set_num_threads(1)  # for one query threads cost more than they bring
        self._parameters = faiss.SearchParametersIVF
        return self._index.ntotal

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        count = min(count, len(self))
        _, ids = self._index.search(query[None], count, params=self._parameters(nprobe=self.partitions(count)))
        return ids[0][(ids[0] >= 0) & (ids[0] < len(self))]

    @staticmethod
    def settings(keys: int) -> dict[str, int]:
        leaves = max(1, min(round(2 * keys**0.5), keys // 40))
        return {"leaves": leaves, "search": max(8, leaves // 50), "wide": 50}

    @staticmethod
    def build(keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        import faiss

        keys = keys.astype(np.float32)
        index = faiss.index_factory(keys.shape[1], f"IVF{settings['leaves']},SQ8", faiss.METRIC_INNER_PRODUCT)
        wanted = min(len(keys), _FAISS_SAMPLE * settings["leaves"])
        index.train(keys[np.sort(np.random.default_rng(0).choice(len(keys), wanted, replace=False))])
        index.add(keys)
        faiss.write_index(index, str(folder / _FAISS_FILE))
