"""The lean forward in native code: one call, from token ids to logits."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch.nn import functional as F

from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.favourites import note
from engines.model.kv_buffer import KVBuffer
from engines.model.lean_forward import Layer, LeanForward
from engines.model.masks import Mask
from engines.model.native import native_code
from engines.model.native.native_linear import NativeEmbedding, NativeLinear, rows_of

LANES = 16  # at most, of a vector


class NativeBuffer(KVBuffer):
    """The buffer in the layout that native code reads fastest: for each head, keys in tiles of 16 rows [dim, 16], and
    values [rows, dim] (attention.h)."""

    @staticmethod
    def _move(store: torch.Tensor, rows: list[int], start: int) -> None:
        slots, _, *sizes = store.shape
        places = (ctypes.c_int64 * len(rows))(*rows)
        native_code.library().native_move(store.data_ptr(), slots, *sizes, places, len(rows), start)


class NativeForward(LeanForward):
    """The ``Forward`` of Llama-like models whose linear layers are native, in float32 on the CPU (``takes``)."""

    name = "native"
    causal = True
    invariant = True
    buffer = NativeBuffer
    outputs: int
    """How many logits a row has."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model)
        self.vocab_size = self.outputs = model.lm_head.out_features
        self._kinds = sorted(self.kinds)
        self.final_norm = self.final_norm * self.width**0.5
        layers = [self._native(layer) for layer in self.layers]
        self._layers = (native_code.NativeLayer * len(layers))(*layers)
        self._head = model.lm_head.native
        rows, factor = rows_of(model.get_input_embeddings())
        self._grow(1)
        self._room = self.like.new_empty(0)
        score_cap, logit_cap = hf.caps(model.config)
        self._model = native_code.NativeModel(
            layers=self._layers, head=self._head, **rows, norm=self.final_norm, layer_count=len(layers),
            width=self.width, mlp=self.layers[0].linears[3].in_features, heads=self.heads, kv_heads=self.kv_heads,
            dim=self.head_dim, rope_dim=self._cos.shape[-1] // len(self.tables), rope_tables=len(self.tables),
            gelu=self.activation is not F.silu, eps=self.eps, score_scale=self.scale, score_cap=score_cap,
            embedding_scale=factor * self.embedding_scale, residual_scale=self.residual_scale,
            logit_scale=self.logit_scale, logit_cap=logit_cap,
        )

    def narrow(self, outputs: int) -> None:
        """Give logits of so many tokens from now on, the first ones: the head is read no further."""
        whole, self.outputs = self._head, outputs
        self._head = native_code.NativeWeight.from_buffer_copy(whole)
        self._head.outputs, self._head.next = outputs, None
        self._model.head = ctypes.addressof(self._head)

    def _native(self, layer: Layer) -> native_code.NativeLayer:
        """A layer for native code. Weights of norms are multiplied by the root of their length, and held by
        ``layer``."""
        for name in ("norm", "mlp_norm", "after_norm", "after_mlp_norm"):
            if (weight := getattr(layer, name)) is not None:
                setattr(layer, name, weight * self.width**0.5)
        if layer.head_norms is not None:
            together = [self.heads, self.kv_heads] if layer.joint else [1, 1]
            lengths = torch.tensor([float(count * self.head_dim) for count in together])
            roots = lengths.sqrt().repeat_interleave(torch.tensor([self.heads, self.kv_heads]))
            layer.head_norms = layer.head_norms.float() * roots[:, None]
        linears = dict(zip(("qkv", "output", "gate_up", "down"), (linear.native for linear in layer.linears)))
        return native_code.NativeLayer(
            **linears, norm=layer.norm, mlp_norm=layer.mlp_norm, head_norms=layer.head_norms,
            after_norm=layer.after_norm, after_mlp_norm=layer.after_mlp_norm, joint_norm=layer.joint, rope=layer.rope,
            mask_kind=self._kinds.index(layer.kind), rope_table=layer.table)

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        if not 0 <= min(tokens) <= max(tokens) < self.vocab_size:
            raise IndexError("a token is beyond the vocabulary")
        count, observer = len(tokens), self._observer
        first_logits = count - 1 if last_only else 0
        first_hidden = 0 if observer is not None and observer.every_row else first_logits
        if max(positions) >= len(self._cos):
            self._grow(max(positions) + 1)
        stream, hidden = self._streams(count)
        if observer is not None:
            hidden = self.like.new_empty(count - first_hidden, self.width)
        logits = self.like.new_empty(count - first_logits, self.outputs)
        found = native_code.favourites_of(count - first_logits)()
        states = self._watched(count)
        watched = (ctypes.c_void_p * (2 * len(self.layers) + 1))() if states else None
        for place, stream_there in states.items():
            watched[place] = stream_there.data_ptr()
        native_code.forward(
            self._model, tokens, positions, first_column=cache.offset, cos=self._cos, sin=self._sin, stream=stream,
            hidden=hidden, logits=logits, first_hidden=first_hidden, first_logits=first_logits,
            cache=cache.store(self.kv_heads, self.head_dim, self.like), capacity=cache.capacity,
            masks=self._masks(mask), mask_kinds=len(self._kinds), skipped=self._skipped(), watched=watched,
            summary=found)
        self._tell(states)
        if observer is not None:
            observer.see_last(hidden)
        return note(logits, found)

    def _streams(self, count: int) -> tuple[int, int]:
        """Places for the residual stream of so many rows, and for its last norm, which nobody reads after the pass.
        They are kept: to make a tensor takes some 20 us once a pass has filled the caches."""
        if self._room.numel() < 2 * count * self.width:
            self._room = self.like.new_empty(2 * count * self.width)
        place = self._room.data_ptr()
        return place, place + 4 * count * self.width

    def _watched(self, count: int) -> dict[int, torch.Tensor]:
        """Room for the residual stream where the observer wants it: before the first sublayer, and after each."""
        observer = self._layer_observer
        if observer is None:
            return {}
        every = observer.sublayers is not None
        places = range(2 * len(self.layers) + 1) if every else [2 * layer for layer in sorted(observer.layers)]
        return dict(zip(places, self.like.new_empty(len(places), count, self.width)))

    def _tell(self, states: dict[int, torch.Tensor]) -> None:
        for place, stream in states.items():
            if place - 1 in states:
                self._layer_observer.see_sublayer(states[place - 1], stream)
            if place and place % 2 == 0:
                self._layer_observer.see_layer(place // 2, stream)

    def _masks(self, mask: Mask) -> ctypes.Array | None:
        """Where the mask of each kind lies."""
        if mask is None:
            return None
        of_kind = mask if isinstance(mask, Mapping) else dict.fromkeys(self._kinds, mask)
        return (ctypes.c_void_p * len(self._kinds))(*(of_kind[kind].data_ptr() for kind in self._kinds))

    def _skipped(self) -> ctypes.Array | None:
        """Of each sublayer whether it is left out."""
        if not any(self._without):
            return None
        flags = [layer in left_out for layer in range(len(self.layers)) for left_out in self._without]
        return (ctypes.c_uint8 * len(flags))(*flags)


def takes(model: PreTrainedModel) -> bool:
    """Whether native code computes a model that the lean forward fits, its layers fused and laid out natively."""
    forward, embedding = LeanForward(model), model.get_input_embeddings()
    linears = [*(linear for layer in forward.layers for linear in layer.linears), model.lm_head]
    sizes = forward.head_dim, forward.width, *(layer.linears[3].in_features for layer in forward.layers)
    known = isinstance(embedding, NativeEmbedding) or hf.embedding_scale(embedding) is not None
    known = known and all(isinstance(one, NativeLinear) for one in linears)
    whole = forward.heads % forward.kv_heads == 0 and all(size % LANES == 0 for size in sizes)
    return known and whole and forward.rotations([0])[0].shape[-1] <= len(forward.tables) * forward.head_dim
