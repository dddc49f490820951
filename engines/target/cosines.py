"""The cosine of the residual stream before and after each sublayer, averaged over the context (ADMG's C_l).

Sums are kept for every row of the KV buffer, so that the average is of the whole context also where the rows of a
prefix are reused, and right after any truncation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from engines.target.sublayers import ATTENTION, MLP, Layer, Sublayers, argument, first

_WAITING = 1 << 22  # numbers that may wait to be compared together: many small operations cost more than a large one
_GROWTH = 256  # rows


class Cosines:
    """Measures during the model's own forwards, while it is on.

    Attributes:
        on: whether it measures.
        needs_every_row: it measures a model whose last layers read the keys of others, and leave out rows that give no
            logits.
        length: committed rows that it has measured, the first ones.
    """

    def __init__(self) -> None:
        self.on, self.needs_every_row, self.length = False, False, 0
        self._hooks: list = []
        self._paused = False
        self._sums = np.zeros((1, 0, 2))  # [rows + 1, layers, 2]: row i is of the first i rows
        self._pending: list[np.ndarray] = []  # [rows, layers, 2] of forwards whose rows are not committed
        self._done: list[torch.Tensor] = []
        self._waiting: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._seen: dict[str, torch.Tensor] = {}

    def start(self, sublayers: Sublayers) -> None:
        """Measure from now on; what was measured before counts."""
        self.stop()
        if self._sums.shape[1] != len(sublayers):
            self._sums = np.zeros((1, len(sublayers), 2))
        self._hooks = [hook for layer in sublayers.layers for hook in self._watch(layer)]
        self.on, self.needs_every_row = True, len(sublayers.attention) < len(sublayers)

    def stop(self) -> None:
        """Measure no more. What was measured stays."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self.on, self.needs_every_row = [], False, False
        self.drop()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Forwards that don't count."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def mean(self) -> tuple[list[float], list[float]]:
        """C_l of attention and MLP sublayers, over the first ``length`` rows; at least one row was measured."""
        attention, mlp = (self._sums[self.length] / self.length).T
        return attention.tolist(), mlp.tolist()

    def take(self) -> None:
        """A forward is over; its rows are pending."""
        if self._paused or not (self._waiting or self._done):
            return
        self._compare()
        done = torch.cat(self._done).view(self._sums.shape[1], 2, -1)
        self._done = []
        self._pending.append(done.permute(2, 0, 1).double().cpu().numpy())

    def keep(self, rows: Sequence[int] | None = None) -> None:
        """Commit these pending rows, or all, and drop the others."""
        if self._pending:
            pending = np.concatenate(self._pending)
            self._commit(pending if rows is None else pending[list(rows)])
        self.drop()

    def drop(self) -> None:
        """Forget the pending rows."""
        self._pending, self._done, self._waiting, self._seen = [], [], [], {}

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

    def _watch(self, layer: Layer) -> list:
        """Hooks that see the residual stream go by: as it enters the MLP, or what attention adds to it where both read
        the same; and as it leaves the layer."""
        attention, mlp = layer.parts[ATTENTION], layer.parts[MLP]
        hooks = [layer.module.register_forward_hook(lambda m, *call: self._leave(layer, *call), with_kwargs=True)]
        if layer.parallel:
            hooks.append(self._output(attention.contribution, ATTENTION))
        else:
            entry = mlp.entry
            hooks.append(entry.module.register_forward_pre_hook(
                lambda m, args, kwargs: self._see("between", argument(entry.key, args, kwargs)), with_kwargs=True
            ))
        if not layer.plain:
            hooks.append(self._output(mlp.contribution, MLP))
        return hooks

    def _output(self, module: torch.nn.Module, name: str):
        return module.register_forward_hook(lambda m, args, output: self._see(name, first(output)))

    def _see(self, name: str, tensor: torch.Tensor) -> None:
        if not self._paused:
            self._seen[name] = tensor

    def _leave(self, layer: Layer, args, kwargs, output) -> None:
        if self._paused:
            return
        stream, end, seen = argument(layer.call.key, args, kwargs), first(output), self._seen
        before = stream if layer.parallel else seen["between"].view_as(stream)
        after = stream + seen[ATTENTION] if layer.parallel else before
        if not layer.plain:
            added = seen[MLP].view_as(stream)
            end = added if layer.parts[MLP].residual is not None else before + added
        elif layer.parallel:
            end = end - seen[ATTENTION]
        self._waiting += [(stream[0], after[0]), (before[0], end[0])]
        self._seen = {}
        if len(self._waiting) * stream.numel() >= _WAITING:
            self._compare()

    def _compare(self) -> None:
        """Cosines of what is waiting, in float32."""
        if self._waiting:
            befores, afters = (torch.stack(streams).float() for streams in zip(*self._waiting))
            self._done.append(torch.cosine_similarity(befores, afters, dim=-1))
            self._waiting = []
