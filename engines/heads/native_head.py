"""A head of the EAGLE family in native code: one call, from tokens and features to logits."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from engines.heads.head_config import EAGLE3
from engines.heads.network import HeadNetwork, Rotation
from engines.libraries import hf
from engines.model.kv_buffer import KVBuffer
from engines.model.native import native_code
from engines.model.native.native_forward import LANES
from engines.model.native.native_linear import GROUP, NativeEmbedding, NativeLinear, rows_of


class NativeHead:
    """The layer of a head and its language modelling head, whose weights are native, in float32 on the CPU (``takes``).

    Args:
        embedding: of the target, or the head's own; ``head``: the language modelling head.
    """

    def __init__(self, network: HeadNetwork, embedding: nn.Module, head: NativeLinear) -> None:
        config = network.config
        self.config, self.outputs = config, head.out_features
        self._rotation = Rotation(config.rope_theta, config.head_dim, torch.empty(0), turning=True)
        eagle3 = config.family == EAGLE3
        norms = {name: _weight(getattr(network, module, None)) for name, module in (
            ("mlp_norm", "post_attention_layernorm"), ("norm", "norm"), ("embedding_norm", "input_layernorm"),
            ("feature_norm", "hidden_norm"))}
        mlp_norm = norms.pop("mlp_norm")
        qkv, gate_up = joined(network.q_proj, network.k_proj, network.v_proj), joined(network.gate_proj,
                                                                                     network.up_proj)
        layer = native_code.NativeLayer(
            qkv=qkv[0], output=network.o_proj.native, gate_up=gate_up[0], down=network.down_proj.native,
            mlp_norm=mlp_norm, rope=True)
        rows, scale = rows_of(embedding)
        self._model = native_code.NativeModel(
            layers=layer, head=head.native, **rows, layer_count=1, width=config.width, mlp=config.mlp,
            heads=config.heads, kv_heads=config.kv_heads, dim=config.head_dim, rope_dim=config.head_dim,
            rope_tables=1, eps=config.eps, score_scale=config.head_dim**-0.5, embedding_scale=scale, residual_scale=1.0,
            logit_scale=1.0, fc=None if eagle3 else network.fc.native, normed_residual=config.norm_before_residual,
            **norms)
        self._held = network, embedding, head, norms, mlp_norm, qkv, gate_up, layer  # the model points into them

    def run(
        self, tokens: Sequence[int], features: torch.Tensor, positions: Sequence[int], mask: np.ndarray | None,
        cache: KVBuffer, last_only: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the next step reads [rows, width], and logits [rows, draft vocabulary], of tokens with their features
        [rows, width], float32; of the last row alone if ``last_only``. Keys and values are written after those that are
        there, for which the cache has room. ``mask``: bool [rows, columns], what each row sees; None: all before it."""
        count, config = len(tokens), self.config
        first = count - 1 if last_only else 0
        cos, sin = self._rotation.tables(max(positions) + 1)
        stream, last = torch.empty(count, config.width), torch.empty(count - first, config.width)
        logits = torch.empty(count - first, self.outputs)
        unseen = None if mask is None else np.logical_not(mask).astype(np.float32)
        masks = None if unseen is None else (ctypes.c_void_p * 1)(unseen.ctypes.data)
        native_code.forward(
            self._model, tokens, positions, first_column=cache.offset, cos=cos, sin=sin, stream=stream, hidden=last,
            logits=logits, first_hidden=first, first_logits=first, capacity=cache.capacity,
            cache=cache.store(config.kv_heads, config.head_dim, stream), masks=masks, mask_kinds=1,
            features=features.contiguous())
        return last if config.norm_output else stream[first:], logits


def _weight(norm: torch.Tensor | None) -> torch.Tensor | None:
    """The weight of a norm, times the root of its length."""
    return None if norm is None else (norm.detach() * len(norm) ** 0.5).contiguous()


def takes(network: HeadNetwork, embedding: nn.Module, head: nn.Module) -> bool:
    """Whether native code computes a head."""
    config, linears = network.config, [m for m in network.modules() if isinstance(m, (nn.Linear, NativeLinear))]
    known = isinstance(embedding, NativeEmbedding) or (
        hf.embedding_scale(embedding) is not None and embedding.weight.dtype == torch.float32)
    whole = not any(size % LANES for size in (config.head_dim, config.mlp))
    whole = whole and not any(size % GROUP for size in (config.width, config.heads * config.head_dim))
    return known and whole and all(isinstance(one, NativeLinear) for one in [*linears, head])


def joined(*linears: NativeLinear) -> list[native_code.NativeWeight]:
    """A weight with the outputs of several, the first of these parts; the others must live as long."""
    parts = []
    for linear in linears:
        at = ctypes.addressof(linear.native)
        while at:
            parts.append(native_code.NativeWeight.from_buffer_copy(native_code.NativeWeight.from_address(at)))
            at = parts[-1].next
    for part, following in pairwise(parts):
        part.next = ctypes.addressof(following)
    return parts
