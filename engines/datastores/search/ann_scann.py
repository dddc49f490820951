"""ScaNN: a tree of partitions, asymmetric hashing in them; the reordering is ours, by the keys of the datastore.

So the index holds no second copy of the keys: 36 bytes a key, and the scores are those of the keys. Loading goes past
ScaNN's own loader, which would unpickle a file of document names if there were one.

Source: Guo et al. 2020, "Accelerating Large-Scale Inference with Anisotropic Vector Quantization"; the settings of
DReSD (section 3.5) were the start of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np

from engines.datastores.search.ann import Index, partitions

_FLAT = 20_000  # keys up to which all hashes are scored, without a tree
_ASSETS = "scann_assets.pbtxt"
_ASSET = re.compile(r'\s*assets \{\s*asset_type: [A-Z_0-9]+\s*asset_path: "[a-z_0-9]+\.(?:pb|npy)"\s*\}\s*')
_THRESHOLD = 0.2  # of anisotropic quantisation
_ALONE = 2_000_000  # keys up to which one thread builds it: the same keys give the same index


def library() -> str:
    """Version of the library."""
    return version("scann")


def settings(keys: int) -> dict[str, int]:
    """Parameters by size: partitions, how many of them are searched, candidates that are scored by their keys."""
    if keys <= _FLAT:
        return {"leaves": 0, "search": 0, "wide": 100}
    leaves = round(keys**0.5)
    return {"leaves": leaves, "search": max(12, leaves // 40), "wide": 150}


def build(keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
    """Make the index of keys float [n, d] and put its files into the folder."""
    from scann import scann_ops_pybind

    count = len(keys)
    builder = scann_ops_pybind.builder(keys.astype(np.float32), settings["wide"], "dot_product")
    if settings["leaves"]:
        sample = min(count, max(100_000, 50 * settings["leaves"]))
        builder = builder.tree(settings["leaves"], settings["search"], training_sample_size=sample)
    builder = builder.score_ah(2, anisotropic_quantization_threshold=_THRESHOLD)
    builder.set_n_training_threads(1 if count <= _ALONE else 0).build().serialize(str(folder), relative_path=True)


class Scann(Index):
    """An index that ``build`` made.

    Args:
        keys: those of the datastore.
        folder: with the index's files.

    Raises:
        ValueError, RuntimeError: the files are not an index of these keys, or of another version.
    """

    backend = "scann"

    def __init__(self, keys: np.ndarray, folder: Path, settings: Mapping[str, int]) -> None:
        from scann.scann_ops.py.scann_ops_pybind import scann_pybind

        super().__init__(keys)
        assets = (folder / _ASSETS).read_text("utf-8")
        if _ASSET.sub("", assets):  # what is named there is opened: nothing outside the folder
            raise ValueError(f"{_ASSETS} is not as ScaNN writes it")
        self._searcher = scann_pybind.ScannNumpy(str(folder), assets)
        if self._searcher.size() != len(keys):
            raise ValueError(f"an index of {self._searcher.size():,} keys for {len(keys):,}")
        self._leaves, self._search = settings["leaves"], settings["search"]
        self.wide = settings["wide"]

    def candidates(self, query: np.ndarray, count: int) -> np.ndarray:
        """See ``Index``. More partitions than usual are searched only where those could hold too few candidates."""
        count = min(count, len(self))
        leaves = partitions(self._leaves, self._search, count, len(self)) or -1
        ids, _ = self._searcher.search(query, count, count, leaves)
        ids = ids.astype(np.int64)
        return ids[ids < len(self)]


INDEX = Scann
