"""The cosine of the residual stream before and after each sublayer, averaged over the context (ADMG's C_l).

Sums are kept for every row of the KV buffer, so that the average is of the whole context also where the rows of a
prefix are reused, and right after any truncation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

_WAITING = 1 << 22  # numbers that may wait to be compared together: many small operations cost more than a large one
_GROWTH = 256  # rows


class LayerCosines:
    """Measures what ``see`` is told during forwards, while it is on.

    Attributes:
        on: whether it measures.
        paused: forwards don't count meanwhile.
        length: committed rows that it has measured, the first ones.
    """

    def __init__(self) -> None:
        self.on, self.paused, self.length = False, False, 0
        self._sums = np.zeros((1, 0, 2))  # [rows + 1, layers, 2]: row i is of the first i rows
        self._pending: list[np.ndarray] = []  # [rows, layers, 2] of forwards whose rows are not committed
        self._done: list[torch.Tensor] = []
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []

    def start(self, layers: int) -> None:
        """Measure from now on; what was measured before counts."""
        self.stop()
        if self._sums.shape[1] != layers:
            self._sums, self.length = np.zeros((1, layers, 2)), 0
        self.on = True

    def stop(self) -> None:
        """Measure no more. What was measured stays."""
        self.on = False
        self.drop()

    def see(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """The residual stream [rows, width] before and after the next sublayer: attention, then MLP, of each layer in
        turn. The tensors must stay as they are until ``take``."""
        if self.paused:
            return
        self._waiting.append((before, after))
        if len(self._waiting) * before.numel() >= _WAITING:
            self._compare()

    def mean(self) -> tuple[list[float], list[float]]:
        """C_l of attention and MLP sublayers, over the first ``length`` rows; at least one row was measured."""
        attention, mlp = (self._sums[self.length] / self.length).T
        return attention.tolist(), mlp.tolist()

    def take(self, rows: int | None = None) -> None:
        """A forward is over; its first ``rows``, or all, are pending."""
        if self.paused or not (self._waiting or self._done):
            return
        self._compare()
        done = torch.cat(self._done).view(self._sums.shape[1], 2, -1)
        self._done = []
        self._pending.append(done.permute(2, 0, 1)[:rows].double().cpu().numpy())

    def keep(self, rows: Sequence[int] | None = None) -> None:
        """Commit these pending rows, or all, and drop the others."""
        if self._pending:
            pending = np.concatenate(self._pending)
            self._commit(pending if rows is None else pending[list(rows)])
        self.drop()

    def drop(self) -> None:
        """Forget the pending rows."""
        self._pending, self._done, self._waiting = [], [], []

    def truncate(self, length: int) -> None:
        """Forget the rows from ``length`` on."""
        self.length = min(self.length, length)
        self.drop()

    def _commit(self, rows: np.ndarray) -> None:
        end = self.length + len(rows)
        if end >= len(self._sums):
            more = np.zeros((end + _GROWTH, *self._sums.shape[1:]))
            more[: len(self._sums)] = self._sums
            self._sums = more
        self._sums[self.length + 1 : end + 1] = self._sums[self.length] + rows.cumsum(0)
        self.length = end

    def _compare(self) -> None:
        """Cosines of what is waiting, in float32."""
        if self._waiting:
            befores, afters = (torch.stack(streams).float() for streams in zip(*self._waiting))
            self._done.append(torch.cosine_similarity(befores, afters, dim=-1))
            self._waiting = []
