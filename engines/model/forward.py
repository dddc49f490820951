"""What ``CausalModel`` asks of a forward: one face for the module of transformers and for a forward of our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from engines.model.kv_buffer import KVBuffer
from engines.model.sublayers import Sublayers

Mask = torch.Tensor | Mapping[str, torch.Tensor] | None
"""Additive, [1, 1, rows, columns]; by kind of layer where there are several; None: what plain text sees."""
See = Callable[[torch.Tensor, torch.Tensor], None]
"""Told the residual stream [rows, width] before and after a sublayer: attention, then MLP, of each layer in turn."""


class Forward(Protocol):
    """A forward over the KV buffer.

    Attributes:
        name: for display.
        makes_masks: whether None is a mask that it understands everywhere; else only for rows at the very beginning,
            and for one row that sees all.
        host_masks: whether it takes masks in the host's memory, wherever the model is.
        hidden: while it is kept, [rows, width] after the final norm, of the last forward's rows that gave logits.
    """

    name: str
    makes_masks: bool
    host_masks: bool
    hidden: torch.Tensor | None

    def run(
        self, tokens: Sequence[int], positions: Sequence[int] | None, mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        """Logits [rows, vocabulary]; of the last row at least, where ``last_only``. Keys and values are written behind
        those in ``cache``; its length is the caller's to change."""

    def keep_hidden(self, on: bool) -> bool:
        """Keep ``hidden`` from now on, or no more. Returns whether it can."""

    def sublayers(self) -> Sublayers:
        """The sublayers of the model. Raises ``structure.Unclear``."""

    def without(
        self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]
    ) -> AbstractContextManager[None]:
        """Forwards without these sublayers (layers from 0). Nothing of them is told to ``See``."""

    def watch(self, sublayers: Sublayers, see: See | None) -> None:
        """Tell ``see`` from now on; None: nobody."""
