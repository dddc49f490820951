"""A forward of our own for Llama-like models: Llama, Mistral, Qwen2, Qwen3, SmolLM3.

A module of transformers spends more time on being general than on a token. Here a layer is some fifteen operations:
queries, keys and values come from one product, gate and up from another (``fused``), rotation works in place on a table
of sines, keys and values are written to the buffer in one copy, and the residual is added by the product that makes
what is added. It computes what the module computes, up to rounding (1e-5 in float32).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from engines.target.cache import KVBuffer
from engines.target.forward import Mask, See
from engines.target.fused import GATE_UP, QKV, fusible
from engines.target.layouts import adding, plain_call
from engines.target.masks import FULL
from engines.target.structure import find
from engines.target.sublayers import Sublayers

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # tables that do not change with the length of the text
_ACTIVATIONS = ("silu", "swish")
_TABLE = 1024  # positions; the table grows in multiples of it


def fits(model: PreTrainedModel) -> bool:
    """Whether this forward computes what the model's own does, judged by its class and configuration."""
    kind, config = type(model), model.config
    if kind.__name__ not in {f"{family}ForCausalLM" for family in FAMILIES}:
        return False
    if not kind.__module__.startswith("transformers.models."):
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("rope_type") in _STATIC_ROPE and config.hidden_act in _ACTIVATIONS and fusible(model)


@dataclass(slots=True)
class _Layer:
    """What a layer's operations need. Weights are those of the model's modules."""

    norm: torch.Tensor
    qkv: Callable
    head_norms: torch.Tensor | None
    rope: bool
    kind: str
    add_attention: Callable
    mlp_norm: torch.Tensor
    gate_up: Callable
    add_mlp: Callable


class Lean:
    """The ``Forward`` of Llama-like models, made once their layers are fused and laid out."""

    name = "lean"
    makes_masks = False

    def __init__(self, model: PreTrainedModel) -> None:
        config, inner = model.config, model.model
        attention = inner.layers[0].self_attn
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim: int = attention.head_dim
        self.eps: float = config.rms_norm_eps
        self.embedding, self.final_norm = inner.embed_tokens.weight.detach(), inner.norm.weight.detach()
        self.head = plain_call(model.lm_head)
        self.layers = [self._layer(config, i, layer) for i, layer in enumerate(inner.layers)]
        self.hidden: torch.Tensor | None = None
        self._model, self._keeps_hidden = model, False
        self._see: See | None = None
        self._rotary = inner.rotary_emb
        self._cos = self._sin = self.embedding.new_zeros(0, 1, self.head_dim)
        self._without: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

    def _layer(self, config, index: int, layer: nn.Module) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            both = [attention.q_norm.weight] * self.heads + [attention.k_norm.weight] * self.kv_heads
            norms = torch.stack([weight.detach() for weight in both])
        kinds = getattr(config, "layer_types", None)
        return _Layer(
            layer.input_layernorm.weight.detach(), plain_call(getattr(attention, QKV)), norms,
            bool(getattr(attention, "use_rope", True)), kinds[index] if kinds else FULL,
            adding(attention.o_proj), layer.post_attention_layernorm.weight.detach(),
            plain_call(getattr(mlp, GATE_UP)), adding(mlp.down_proj),
        )

    def keep_hidden(self, on: bool) -> bool:
        self._keeps_hidden, self.hidden = on, None
        return True

    def sublayers(self) -> Sublayers:
        return find(self._model)

    def watch(self, sublayers: Sublayers, see: See | None) -> None:
        self._see = see

    @contextmanager
    def without(self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        sublayers.check(attention, mlp)
        before, see = self._without, self._see
        self._without, self._see = (attention, mlp), None
        try:
            yield
        finally:
            self._without, self._see = before, see

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        device = self.embedding.device
        x = F.embedding(torch.tensor(tokens, device=device), self.embedding)
        x = self.layers_over(x, *self._rotations(positions), mask, cache)
        if last_only:
            x = x[-1:]
        x = F.rms_norm(x, x.shape[-1:], self.final_norm, self.eps)
        if self._keeps_hidden:
            self.hidden = x
        return self.head(x)

    def layers_over(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: Mask, cache: KVBuffer):
        """The residual stream [rows, width] after all layers."""
        rows, start = len(x), cache.offset
        written, keys, values = cache.places(self.kv_heads, self.head_dim, rows, x)
        attend = self._attention(rows, start, mask)
        width, no_attention, no_mlp, see = x.shape[-1:], *self._without, self._see
        for i, layer in enumerate(self.layers):
            before = x
            if i not in no_attention:
                qkv = layer.qkv(F.rms_norm(x, width, layer.norm, self.eps)).view(rows, -1, self.head_dim)
                queries = self._rotated(layer, qkv, cos, sin)
                pair = qkv[:, self.heads :].view(rows, 2, self.kv_heads, self.head_dim)
                written[i].copy_(pair.permute(1, 2, 0, 3))
                x = layer.add_attention(x, attend(queries, keys[i], values[i], layer.kind))
            if see is not None:
                see(before, x)
                before = x
            if i not in no_mlp:
                gate, up = layer.gate_up(F.rms_norm(x, width, layer.mlp_norm, self.eps)).chunk(2, -1)
                x = layer.add_mlp(x, F.silu(gate).mul_(up))
            if see is not None:
                see(before, x)
        return x

    def _rotated(self, layer: _Layer, qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Norms of heads where there are any, and rotation, of queries and keys in place; returns the queries."""
        both = qkv[:, : self.heads + self.kv_heads]
        if layer.head_norms is not None:
            both.copy_(F.rms_norm(both, (self.head_dim,), None, self.eps).mul_(layer.head_norms))
        if layer.rope:
            turned = both.roll(self.head_dim // 2, -1)
            both.mul_(cos).addcmul_(turned, sin)
        return both[:, : self.heads]

    def _attention(self, rows: int, start: int, mask: Mask) -> Callable:
        """Attention of queries [rows, heads, dim] over keys and values [1, kv heads, columns, dim]: [rows, width].

        Heads that share keys are laid beneath each other as more rows, so that no key is copied for them.
        """
        groups, dim = self.heads // self.kv_heads, self.head_dim
        causal = mask is None and rows > 1
        if causal and start:
            raise ValueError("rows behind others need a mask")
        folded = _folded(mask, groups)

        def attend(queries, keys, values, kind):
            if causal:
                q = queries.transpose(0, 1).unsqueeze(0)
                out = F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=groups > 1)
                return out[0].transpose(0, 1).reshape(rows, -1)
            q = queries.reshape(rows, self.kv_heads, groups, dim).permute(1, 2, 0, 3)
            q = q.reshape(1, self.kv_heads, groups * rows, dim)
            own = folded[kind] if isinstance(folded, dict) else folded
            out = F.scaled_dot_product_attention(q, keys, values, attn_mask=own)
            return out.view(self.heads, rows, dim).transpose(0, 1).reshape(rows, -1)

        return attend

    def _rotations(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [rows, 1, head dim] of these positions."""
        last = max(positions)
        if last >= len(self._cos):
            self._grow(last + 1)
        if isinstance(positions, range) or len(positions) == 1:
            where = slice(positions[0], positions[-1] + 1)
        else:
            where = torch.tensor(positions, device=self._cos.device)
        return self._cos[where], self._sin[where]

    def _grow(self, positions: int) -> None:
        """Tables [positions, 1, head dim] from the model's own rotary embedding. The first half of the sines is
        negated, so that turning by half a head rotates."""
        count = -(-max(positions, 2 * len(self._cos)) // _TABLE) * _TABLE
        where = torch.arange(count, device=self.embedding.device)[None]
        cos, sin = self._rotary(self.embedding, where)
        sin = sin.clone()
        sin[..., : self.head_dim // 2].neg_()
        self._cos, self._sin = cos[0].unsqueeze(1).contiguous(), sin[0].unsqueeze(1).contiguous()


def _folded(mask: Mask, groups: int) -> Mask:
    """Masks for ``groups`` heads beneath each other."""
    if mask is None or groups == 1:
        return mask
    if isinstance(mask, torch.Tensor):
        return mask.repeat(1, 1, groups, 1)
    return {kind: one.repeat(1, 1, groups, 1) for kind, one in mask.items()}
