"""What ``CausalModel`` asks of a forward: one face for the module of transformers and for a forward of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from engines.model.kv_buffer import KVBuffer
from engines.model.sublayers import Sublayers

Mask = torch.Tensor | Mapping[str, torch.Tensor] | None
"""Additive, [1, 1, rows, columns]; by kind of layer where there are several; None: what plain text sees."""


class Observer(Protocol):
    """What is told of hidden states while a forward runs.

    Attributes:
        layers: layers, counted from 1, after which it wants the residual stream.
        sublayers: those it wants the residual stream before and after; None: of none.
        last: whether it wants the states after the final norm.
        every_row: whether it wants them of rows that give no logits too.
    """

    layers: frozenset[int]
    sublayers: Sublayers | None
    last: bool
    every_row: bool

    def see_layer(self, layer: int, stream: torch.Tensor) -> None:
        """The residual stream [rows, width] after a layer, counted from 1."""

    def see_sublayer(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """The residual stream [rows, width] before and after a sublayer: attention, then MLP, of each layer in turn."""

    def see_last(self, states: torch.Tensor) -> None:
        """The states [rows, width] after the final norm."""


class Forward(Protocol):
    """A forward over the KV buffer.

    Attributes:
        name: for display.
        makes_masks: whether None is a mask that it understands everywhere; else only for rows at the very beginning,
            and for one row that sees all.
        host_masks: whether it takes masks in the host's memory, wherever the model is.
    """

    name: str
    makes_masks: bool
    host_masks: bool

    def run(
        self, tokens: Sequence[int], positions: Sequence[int] | None, mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        """Logits [rows, vocabulary], or with ``last_only`` those of the last row, [1, vocabulary]. Keys and values are
        written after those in ``cache``; its length is the caller's to change."""

    def observe(self, observer: Observer | None) -> None:
        """Tell this observer, and no other, from now on; None tells nobody.

        Raises:
            UnsupportedStructure: the model does not show what the observer wants.
        """

    def without(
        self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]
    ) -> AbstractContextManager[None]:
        """Forwards without these sublayers (layers from 0), of which the observer is told nothing.

        Raises:
            ValueError: one of them cannot be left out.
        """
