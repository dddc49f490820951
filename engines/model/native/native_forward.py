"""The lean forward in native code: a call for all layers."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from engines.model.kv_buffer import KVBuffer
from engines.model.lean_forward import Layer as LeanLayer
from engines.model.lean_forward import LeanForward
from engines.model.masks import Mask
from engines.model.native import native_code as native
from engines.model.native.native_linear import NativeLinear

LANES = 16  # numbers of a vector


class NativeForward(LeanForward):
    """The ``Forward`` of Llama-like models whose linear layers are native, in float32 on the CPU (``takes``)."""

    name = "native"
    causal = True
    invariant = True

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self._kinds = sorted(self.kinds)
        layers = [self._native(layer) for layer in self.layers]
        self._layers = (native.NativeLayer * len(layers))(*layers)
        self._model = native.NativeModel(
            ctypes.addressof(self._layers), self.width, self.layers[0].linears[3].in_features, self.heads,
            self.kv_heads, self.head_dim, self.eps,
        )

    def _native(self, layer: LeanLayer) -> native.NativeLayer:
        """A layer for native code; its tensors are held by ``layer``."""
        if layer.head_norms is not None:  # as the other norms, times the root of their length
            layer.head_norms = layer.head_norms.float() * self.head_dim**0.5
        norms = [None if norm is None else norm.data_ptr() for norm in (layer.norm, layer.mlp_norm, layer.head_norms)]
        linears = (linear.native for linear in layer.linears)
        return native.NativeLayer(*linears, *norms, layer.rope, self._kinds.index(layer.kind))

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        x = self.embed(torch.tensor(tokens))
        cos, sin = self.rotations(positions)
        rows = cache.pairs(self.kv_heads, self.head_dim, self.like)
        masks = self._masks(mask)
        skipped = self._skipped()
        call = native.NativeRows(
            len(tokens), cache.offset, x.data_ptr(), cos.data_ptr(), sin.data_ptr(), rows.data_ptr(), cache.capacity,
            masks and ctypes.addressof(masks), len(self._kinds), skipped and ctypes.addressof(skipped),
        )
        end, observer = 2 * len(self.layers), self._layer_observer
        for stop in self._stops(end):
            before = x.clone() if observer is not None and observer.sublayers is not None else None
            call.begin, call.end = call.end, stop
            native.check(native.library().native_layers(
                ctypes.byref(self._model), ctypes.byref(call), torch.get_num_threads()))
            if observer is None:
                continue
            after = x if stop == end else x.clone()
            if before is not None:
                observer.see_sublayer(before, after)
            if stop % 2 == 0 and stop // 2 in observer.layers:
                observer.see_layer(stop // 2, after)
        return self._wanted(x, last_only)

    def _stops(self, end: int) -> Sequence[int]:
        """After which sublayers the stream is looked at, the last one included."""
        observer = self._layer_observer
        if observer is None:
            return [end]
        if observer.sublayers is not None:
            return range(1, end + 1)
        return sorted({2 * layer for layer in observer.layers} | {end})

    def _masks(self, mask: Mask) -> ctypes.Array | None:
        """Where the mask of each kind lies."""
        if mask is None:
            return None
        of_kind = mask if isinstance(mask, Mapping) else dict.fromkeys(self._kinds, mask)
        return (ctypes.c_void_p * len(self._kinds))(*(of_kind[kind].data_ptr() for kind in self._kinds))

    def _skipped(self) -> ctypes.Array | None:
        attention, mlp = self._without
        if not attention and not mlp:
            return None
        flags = [layer in left_out for layer in range(len(self.layers)) for left_out in self._without]
        return (ctypes.c_uint8 * len(flags))(*flags)


def takes(model: PreTrainedModel) -> bool:
    """Whether native code computes a model that the lean forward fits, its layers fused and laid out natively."""
    forward = LeanForward(model)
    linears = [linear for layer in forward.layers for linear in layer.linears]
    sizes = forward.head_dim, forward.width, *(layer.linears[3].in_features for layer in forward.layers)
    return all(isinstance(one, NativeLinear) for one in linears) and all(size % LANES == 0 for size in sizes)
