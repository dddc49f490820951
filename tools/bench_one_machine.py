"""How large a datastore one machine holds, and what a lookup costs there: exact match in arrays on the disk.

    python tools/bench_one_machine.py [--tokens N]... [--folder DIR]

The text is made up: every token occurs once, so that its suffix array is known without sorting suffixes. A lookup goes
the same way through the arrays as in a real datastore of as many tokens (bisection over all suffixes, for each length
that it tries), and reads as many pages. Warm: all of it lies in memory; cold: the system has forgotten the files.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from engines.datastores.search.sparse import SparseStore

WIDTH = 4  # bytes of a token of a large vocabulary; a suffix takes as many
SUFFIX, LOOKUPS = 16, 400


class MadeUp:
    """Stands for ``engines.datastores.storage.datastore.Store``: one document of tokens that occur once each."""

    name = "made up"

    def __init__(self, folder: Path, tokens: int) -> None:
        order = np.random.default_rng(0).permutation(tokens).astype("<i4")
        text = np.empty(tokens + 1, ">u4")
        text[order], text[-1] = np.arange(tokens), 0xFFFFFFFF
        self.text = text
        self.manifest = SimpleNamespace(vocab_size=tokens + 1, tokens=tokens, documents=1)
        self._folder = folder
        for name, array in (("tokens", text), ("suffixes", order), ("documents", np.zeros(1, "<i4")),
                            ("places", np.zeros((1, 2), "<i4")), ("lines", np.zeros(1, "<i4")),
                            ("names", np.zeros(1, "|u1")), ("name_ends", np.ones(1, "<i8"))):
            array.tofile(folder / f"{name}.bin")
        self._shapes = {"places": (1, 2)}

    def array(self, name: str, dtype: str = ">u4", ndim: int = 1) -> np.ndarray:
        shape = self._shapes.get(name)
        found = np.memmap(self._folder / f"{name}.bin", dtype, "r")
        return found.reshape(shape) if shape else found

    def bytes(self, name: str) -> mmap.mmap:
        with (self._folder / name).open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def sizes(self, part: str, share: float = 1.0) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in self._folder.glob("*.bin")}

    def forget(self) -> None:
        """Make the system forget the files (Linux)."""
        for path in self._folder.glob("*.bin"):
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def seconds(store: SparseStore, text: np.ndarray, seed: int) -> list[float]:
    """Of each of some lookups of 16 tokens that stand in the text, with their continuation read: every length that is
    tried is found, which is the longest way."""
    found = []
    for end in np.random.default_rng(seed).integers(SUFFIX, len(text) - SUFFIX, LOOKUPS):
        context = text[end - SUFFIX : end].tolist()
        clock = time.perf_counter()
        match = store.longest(context, SUFFIX, 1)
        if match is not None:
            store.continuations(match)
        found.append(time.perf_counter() - clock)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, action="append", help="sizes, in millions (default: 1, 8, 64)")
    parser.add_argument("--folder", type=Path, help="where the files are made (default: the system's temporary folder)")
    arguments = parser.parse_args()
    print("| tokens | bytes | warm, ms a lookup | lookups/s | cold, ms | lookups/s |\n|---|---|---|---|---|---|")
    for millions in arguments.tokens or (1, 8, 64):
        size = millions * 10**6
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            made = MadeUp(Path(folder), size)
            os.sync()
            made.forget()
            text = made.text
            cold = statistics.median(seconds(SparseStore(made), text, 1))
            store = SparseStore(made)
            for name in ("tokens.bin", "suffixes.bin"):
                (Path(folder) / name).read_bytes()
            seconds(store, text, 2)
            warm = statistics.median(seconds(store, text, 3))
        print(f"| {millions} million | {2 * WIDTH * size / 1e9:.2f} GB | {warm * 1e3:.3f} | {1 / warm:,.0f} | "
              f"{cold * 1e3:.2f} | {1 / cold:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
