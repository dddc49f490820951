"""The KV buffer of native code."""

from __future__ import annotations

import torch

from engines.model.kv_buffer import KVBuffer
from engines.model.native import native_code


class NativeBuffer(KVBuffer):
    """The buffer in the layout that native code reads fastest: for each head, keys in tiles of 16 rows [dim, 16], and
    values [rows, dim] (attention.h)."""

    @staticmethod
    def _move(store: torch.Tensor, rows: list[int], start: int) -> None:
        slots, _, heads, capacity, dim = store.shape
        native_code.move(store, slots, heads, capacity, dim, rows, start)
