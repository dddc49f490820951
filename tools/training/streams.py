"""Packed windows drawn from several encoded sources in given shares."""

from pathlib import Path

import numpy as np
import torch


class Source:
    """One encoded source: its documents in a new order on every pass, cut into windows.

    A window begins where a document begins, as a prompt does later, unless the document is longer
    than a window; the document that the previous window's end cut off comes again in full.
    """

    def __init__(self, path: Path, length: int, seed: tuple[int, ...]):
        with np.load(path, allow_pickle=False) as arrays:
            self.tokens, starts = arrays["tokens"], arrays["starts"]
            self.bytes = int(arrays["bytes"])
        self.documents = np.split(self.tokens, starts[1:])
        self.length, self.seed = length, seed
        self._pass = -1

    def _begin_pass(self, number: int) -> None:
        order = np.random.default_rng((*self.seed, number)).permutation(len(self.documents))
        sizes = np.array([len(self.documents[i]) for i in order])
        self._stream = np.concatenate([self.documents[i] for i in order])
        if len(self._stream) < self.length:
            self._stream = np.tile(self._stream, -(-self.length // len(self._stream)))
        self._begins = window_starts(np.cumsum(sizes) - sizes, len(self._stream), self.length)
        self._begins = np.random.default_rng((*self.seed, number, 1)).permutation(self._begins)
        self._pass = number

    def window(self, position: tuple[int, int]) -> tuple[np.ndarray, tuple[int, int]]:
        """The window at (pass, index) and the position of the next one."""
        number, index = position
        if number != self._pass:
            self._begin_pass(number)
        begin = self._begins[index]
        following = (number, index + 1) if index + 1 < len(self._begins) else (number + 1, 0)
        return self._stream[begin : begin + self.length], following


def window_starts(document_starts: np.ndarray, total: int, length: int) -> np.ndarray:
    """Where windows of `length` tokens begin so that they cover a stream of `total` tokens."""
    begins, begin = [], 0
    while begin + length < total:
        begins.append(begin)
        last = document_starts[np.searchsorted(document_starts, begin + length, side="right") - 1]
        begin = int(last) if last > begin + length // 2 else begin + length - 1
    begins.append(total - length)
    return np.array(begins)


class Mixer:
    """Batches of windows whose sources are drawn by weight; the same seed gives the same batches."""

    def __init__(self, folder: Path, shares: dict[str, float], length: int, rows: int, seed: int):
        known = {name: share for name, share in shares.items() if (folder / f"{name}.npz").exists()}
        if not known:
            raise SystemExit(f"none of the sources {', '.join(shares)} is encoded in {folder}")
        self.sources = [
            Source(folder / f"{name}.npz", length, (seed, i)) for i, name in enumerate(sorted(known))
        ]
        weights = np.array([known[name] for name in sorted(known)], dtype=float)
        self.weights, self.rows, self.seed = weights / weights.sum(), rows, seed
        self.shares = dict(zip(sorted(known), self.weights.round(4).tolist(), strict=True))
        self.positions = [(0, 0) for _ in self.sources]

    def batch(self, step: int) -> torch.Tensor:
        """The batch of a step; steps must be asked for in order."""
        chosen = np.random.default_rng((self.seed, 7, step)).choice(
            len(self.sources), self.rows, p=self.weights
        )
        windows = []
        for i in chosen:
            window, self.positions[i] = self.sources[i].window(self.positions[i])
            windows.append(window.astype(np.int64))
        return torch.from_numpy(np.stack(windows))

    def state(self) -> list[list[int]]:
        """Where every source stands, for a checkpoint."""
        return [list(position) for position in self.positions]

    def restore(self, state: list[list[int]]) -> None:
        """Continue where a checkpoint's `state` stood."""
        self.positions = [(int(number), int(index)) for number, index in state]
