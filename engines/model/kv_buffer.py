"""One preallocated KV buffer for all layers of a model, with one absolute length.

transformers' dynamic cache concatenates at every step and crops relative to its own length; its sliding layers drop
rows, after which nothing can be rolled back. Here every layer keeps every row at a fixed place, rows are written at
``length + pending``, and keeping an accepted path is one indexed move (or none where the path is already in place).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engines.libraries.hf import Cache, CacheLayerMixin

_STEP = 256  # rows; buffers grow in multiples of it
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by element size


class BufferLayer(CacheLayerMixin):
    """A layer's share of the buffer: keys and values [1, heads, capacity, dim], views of the owner's stores."""

    is_sliding = False

    def __init__(self, owner: KVBuffer, index: int) -> None:
        super().__init__()
        self.owner, self.index = owner, index

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take a place in the buffer for keys and values of these shapes, [1, heads, rows, dim] each."""
        self.owner.allocate(self, key_states, value_states)
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Write rows after those that are there.

        Args:
            key_states, value_states: [1, heads, rows, dim] each.

        Returns:
            All keys and all values up to and including the new ones, [1, heads, columns, dim] each; views.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.owner.offset
        end = start + key_states.shape[-2]
        self.keys[..., start:end, :] = key_states
        self.values[..., start:end, :] = value_states
        return self.keys[..., :end, :], self.values[..., :end, :]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.owner.offset + query_length, 0

    def get_seq_length(self) -> int:
        return self.owner.offset

    def get_max_length(self) -> int:
        return -1


class KVBuffer(Cache):
    """The buffer: ``length`` committed rows, then ``pending`` rows of the tree under way."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers=[BufferLayer(self, i) for i in range(layers)])
        self.length = 0
        self.pending = 0
        self.capacity = 0
        self._stores: list[torch.Tensor] = []  # [layers of one shape, 1, heads, capacity, dim], keys and values alike
        self._used: list[int] = []  # slots taken in each store

    @property
    def offset(self) -> int:
        """Where the next row goes."""
        return self.length + self.pending

    @property
    def row_bytes(self) -> int:
        """Size of a row, keys and values of all layers; 0 before the first one was written."""
        return sum(store.nbytes for store in self._stores) // max(1, self.capacity)

    @torch.inference_mode()
    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` in all; grows geometrically and keeps what is there."""
        if rows <= self.capacity:
            return
        capacity = -(-max(rows, self.capacity * 3 // 2) // _STEP) * _STEP
        stores = []
        for old, used in zip(self._stores, self._used):  # slots that no layer took (of other shapes) go
            stores.append(old.new_zeros(used, *old.shape[1:3], capacity, old.shape[4]))
            stores[-1][..., : old.shape[3], :] = old[:used]
        self.capacity, self._stores = capacity, stores  # only now: an allocation may fail
        for layer in self.layers:
            if layer.is_initialized:
                self._point(layer)

    def allocate(self, layer: BufferLayer, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Give a layer its place: layers shaped like the first share one store, so that a move is one operation.

        Args:
            key_states, value_states: [1, heads, rows, dim] each; only their shapes, dtype and device matter.
        """
        self.reserve(1)
        slots = []
        for states in (key_states, value_states):
            shape = (1, states.shape[1], states.shape[3])
            slots.append(self._slot(shape, states, layer.index))
        layer.slots = slots
        self._point(layer)

    def places(
        self, heads: int, dim: int, rows: int, like: torch.Tensor
    ) -> tuple[Sequence[torch.Tensor], Sequence[torch.Tensor], Sequence[torch.Tensor]]:
        """For a forward of ``rows`` by hand, over layers that are all alike: where its keys and values go, a tensor
        [1, rows, 2 heads, dim] for each layer, the keys' heads first; and all keys and all values up to those,
        [1, heads, columns, dim] each.

        Args:
            like: its dtype and device are the buffer's.
        """
        start, end = self.offset, self.offset + rows
        written = self.pairs(heads, dim, like)[:, None, :, start:end].transpose(2, 3)
        seen = self.store(heads, dim, like)[..., :end, :].unbind(0)
        return written.unbind(0), seen[0::2], seen[1::2]

    def pairs(self, heads: int, dim: int, like: torch.Tensor) -> torch.Tensor:
        """``store`` as [layers, 2 heads, capacity, dim], the keys' heads first."""
        return self.store(heads, dim, like).view(len(self.layers), 2 * heads, self.capacity, dim)

    def store(self, heads: int, dim: int, like: torch.Tensor) -> torch.Tensor:
        """All of the buffer where layers are all alike: [2 layers, 1, heads, capacity, dim], keys and values in turn.
        It moves when the buffer grows (``reserve``)."""
        if not self._stores:
            empty = like.new_empty(1, heads, 0, dim)
            for layer in self.layers:
                layer.lazy_initialization(empty, empty)
        return self._stores[0]

    def _slot(self, shape: tuple[int, int, int], states: torch.Tensor, index: int) -> tuple[int, int]:
        """A free place for rows of this shape (1, heads, dim): the store's index, the place's index in it."""
        for s, store in enumerate(self._stores):
            used = self._used[s]
            if (store.shape[1], store.shape[2], store.shape[4]) == shape and used < store.shape[0]:
                self._used[s] += 1
                return s, used
        layers = 2 * (len(self.layers) - index)
        self._stores.append(states.new_zeros(layers, 1, shape[1], self.capacity, shape[2]))
        self._used.append(1)
        return len(self._stores) - 1, 0

    def _point(self, layer: BufferLayer) -> None:
        (ks, ki), (vs, vi) = layer.slots
        layer.keys, layer.values = self._stores[ks][ki], self._stores[vs][vi]

    def keep(self, rows: list[int]) -> None:
        """Commit pending rows ``rows`` (ascending indices into the pending ones) and drop the others."""
        if rows and rows[-1] >= len(rows):  # else all of them are in place
            in_place = next(i for i, row in enumerate(rows) if row != i)
            for store in self._stores:
                self._move(store, [self.length + row for row in rows[in_place:]], self.length + in_place)
        self.length += len(rows)
        self.pending = 0

    def truncate(self, length: int) -> None:
        """Forget every row from ``length`` on, and the pending ones. Raises ValueError: there are not so many committed
        rows."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot truncate {self.length} rows to {length}")
        self.length, self.pending = length, 0

    @staticmethod
    def _move(store: torch.Tensor, rows: list[int], start: int) -> None:
        """Copy these rows, in rising order, of a store [layers, 1, heads, capacity, dim] to ``start`` and on."""
        if store.device.type == "cpu":  # numpy moves bits, whatever their type, at a fraction of torch's fixed cost
            bits = store.view(_BITS[store.element_size()]).numpy()
            bits[..., start : start + len(rows), :] = bits.take(rows, axis=3)
        else:
            with torch.inference_mode():  # costs more than the rest of ``keep`` where nothing moves
                where = torch.tensor(rows)
                if store.device.type == "cuda":  # from pinned memory the device need not be waited for
                    where = where.pin_memory()
                where = where.to(store.device, non_blocking=True)
                store[..., start : start + len(rows), :] = store.index_select(3, where)
