"""A lean forward for Llama-like models: Llama, Mistral, Qwen2, Qwen3, SmolLM3; in float32 Gemma 3 and Granite, too. It
describes a few families more for native code (``fits``), which has all of their operations.

A module of transformers spends more time on being general than on a token. Here a layer is some fifteen operations:
queries, keys and values come from one product, gate and up from another (``fused_layers.fuse``), rotation works in
place on a table of sines, and keys and values are written to the buffer in one copy. It computes what the module
computes, up to rounding (1e-5 in float32). In half precision it rounds where the module does, so that audits, which
read by the module, know its rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.forward import Forward, Observer
from engines.model.fused_layers import GATE_UP, QKV, fusible
from engines.model.kv_buffer import KVBuffer
from engines.model.masks import FULL, Mask
from engines.model.sublayers import Sublayers

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")
_FLOAT32_FAMILIES = ("Gemma3", "Granite")  # their modules round elsewhere in half precision
_NATIVE_FAMILIES = ("Gemma2", "Olmo2", "Olmo3", "Phi3")
_STATIC_ROPE = ("default", "linear", "llama3", "yarn")  # tables that do not change with the length of the text
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": F.silu, "swish": F.silu, "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
}
Exchange = Callable[[int, torch.Tensor, str], torch.Tensor]
"""The part of a layer in which rows see each other. Given the layer's index, its queries, keys and values [1, rows,
heads + 2 kv heads, head dim] and its kind (``masks``), it keeps keys and values and returns what attention gives,
[rows, width]."""
_TABLE = 1024  # positions; the table grows in multiples of it


def fits(model: PreTrainedModel, native: bool = False) -> bool:
    """Whether this forward, or ``native`` code by its description of the layers, computes what the model's own does,
    judged by its class and configuration."""
    kind, config = type(model), model.config
    families = FAMILIES + (_FLOAT32_FAMILIES if native or model.dtype == torch.float32 else ())
    families += _NATIVE_FAMILIES if native else ()
    if kind.__name__ not in {f"{family}ForCausalLM" for family in families}:
        return False
    if not kind.__module__.startswith("transformers.models."):
        return False
    if (any(hf.caps(config)) and not native) or getattr(config, "use_bidirectional_attention", False):
        return False
    static = all(rope.get("rope_type") in _STATIC_ROPE for rope in hf.ropes(config).values())
    return static and hf.activation(config) in _ACTIVATIONS and fusible(model)


@dataclass(slots=True)
class Layer:
    """What a layer's operations need. Weights are those of the model's modules.

    Attributes:
        norm, mlp_norm: weights [width] of the norms before attention and MLP; None: the model has none.
        after_norm, after_mlp_norm: weights [width] of the norms after attention and MLP; None: the model has none.
        head_norms: weights [heads + kv heads, head dim] of the norms of queries and keys, None without.
        joint: whether these norms are of all heads of a row together.
        rope: whether queries and keys are rotated.
        kind: of attention (``masks``).
        table: index of this layer's table of rotations.
        linears: its linear layers: of queries, keys and values; of attention's output; of gate and up; of the MLP's
            output.
    """

    norm: torch.Tensor | None
    head_norms: torch.Tensor | None
    joint: bool
    rope: bool
    kind: str
    mlp_norm: torch.Tensor | None
    linears: tuple[nn.Module, nn.Module, nn.Module, nn.Module]
    after_norm: torch.Tensor | None = None
    after_mlp_norm: torch.Tensor | None = None
    table: int = 0


class LeanForward(Forward):
    """The ``Forward`` of Llama-like models, made once their layers are fused and laid out. ``like``: an empty tensor of
    the model's dtype and on its device."""

    name = "lean"

    def __init__(self, model: PreTrainedModel) -> None:
        config, inner = model.config, model.model
        attention = inner.layers[0].self_attn
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim: int = attention.head_dim
        self.eps: float = config.rms_norm_eps
        self.width: int = config.hidden_size
        self.activation = _ACTIVATIONS[hf.activation(config)]
        self.scale: float = attention.scaling
        self.embedding_scale, self.residual_scale, self.logit_scale = hf.scales(config)
        self.embed, self.head = inner.embed_tokens, model.lm_head
        self.like = inner.norm.weight.detach().new_empty(0)
        self.final_norm = hf.norm_weight(inner.norm)
        ropes = hf.ropes(config)
        self.tables = sorted(ropes if len(ropes) == 1 else ropes.keys() & set(hf.layer_kinds(config) or ()))
        self.layers = [self._layer(config, i, layer) for i, layer in enumerate(inner.layers)]
        self.kinds = frozenset(layer.kind for layer in self.layers)
        self._observer: Observer | None = None
        self._layer_observer: Observer | None = None  # the same, where it wants the residual stream
        self._rotary = inner.rotary_emb
        self._cos = self._sin = self.like.new_zeros(0, 1, len(self.tables) * self.head_dim)
        self._without: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())

    def _layer(self, config, index: int, layer: nn.Module) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms, joint = self._head_norms(attention)
        kinds = hf.layer_kinds(config)
        kind = kinds[index] if kinds else FULL
        linears = getattr(attention, QKV), attention.o_proj, getattr(mlp, GATE_UP), mlp.down_proj
        names = "input_layernorm", "post_attention_layernorm", None, None
        if hasattr(layer, "post_feedforward_layernorm"):  # then the second is after attention, as its name says
            names = ("input_layernorm", "pre_feedforward_layernorm", "post_attention_layernorm",
                     "post_feedforward_layernorm")
        weights = [hf.norm_weight(getattr(layer, name)) if name and hasattr(layer, name) else None for name in names]
        own, mlp_norm, *after = weights
        return Layer(
            norm=own, head_norms=norms, joint=joint, rope=bool(getattr(attention, "use_rope", True)), kind=kind,
            mlp_norm=mlp_norm, linears=linears, after_norm=after[0], after_mlp_norm=after[1],
            table=self.tables.index(kind) if len(self.tables) > 1 else 0,
        )

    def _head_norms(self, attention: nn.Module) -> tuple[torch.Tensor | None, bool]:
        """``Layer.head_norms`` and ``Layer.joint``."""
        if not hasattr(attention, "q_norm"):
            return None, False
        queries, keys = hf.norm_weight(attention.q_norm), hf.norm_weight(attention.k_norm)
        joint = len(queries) > self.head_dim or self.heads == 1
        parts = [queries, keys] if joint else [queries] * self.heads + [keys] * self.kv_heads
        return torch.cat(parts).view(-1, self.head_dim), joint and self.heads > 1

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Rows [rows, width], normalised; rounded where the module rounds."""
        return F.rms_norm(x, (self.width,), None, self.eps).mul_(weight)

    def _added(self, x: torch.Tensor, out: torch.Tensor, norm: torch.Tensor | None) -> torch.Tensor:
        """The residual stream [rows, width] plus what a sublayer gives, [rows, width], normalised where there is a norm
        after it."""
        out = out if norm is None else self.norm(out, norm)
        return x + out if self.residual_scale == 1 else x + out * self.residual_scale

    def observe(self, observer: Observer | None) -> None:
        self._observer = observer
        inside = observer is not None and (observer.layers or observer.sublayers is not None)
        self._layer_observer = observer if inside else None

    @contextmanager
    def without(self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        sublayers.check(attention, mlp)
        before, observer = self._without, self._observer
        self._without = (attention, mlp)
        self.observe(None)
        try:
            yield
        finally:
            self._without = before
            self.observe(observer)

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        ids = torch.tensor(tokens, device=self.like.device)
        x = self.layers_over(ids, *self.rotations(positions), self._over(cache, len(tokens), mask))
        return self._wanted(x, last_only)

    def _wanted(self, x: torch.Tensor, last_only: bool) -> torch.Tensor:
        """Logits of the residual stream after all layers, the last row's or all."""
        every_row = self._observer is not None and self._observer.every_row
        x = self.norm(x[-1:] if last_only and not every_row else x, self.final_norm)
        if self._observer is not None:
            self._observer.see_last(x)
        return self.logits(x[-1:] if last_only else x)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Of states [rows, width] after the final norm: [rows, vocabulary]."""
        logits = self.head(states)
        return logits if self.logit_scale == 1 else logits * self.logit_scale

    def layers_over(
        self, ids: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, exchange: Exchange,
        observer: Observer | None = None,
    ) -> torch.Tensor:
        """The residual stream [rows, width] of token ids [rows] after all layers, with what ``rotations`` gives.
        ``observer``: is told instead of the one of ``observe``."""
        x = self.embed(ids)
        x = x if self.embedding_scale == 1 else x * self.embedding_scale
        (no_attention, no_mlp), observer = self._without, observer or self._layer_observer
        for i, layer in enumerate(self.layers):
            before = x
            if i not in no_attention:
                attended = exchange(i, self._states(layer, x, cos, sin), layer.kind)
                x = self._added(x, layer.linears[1](attended), layer.after_norm)
            if observer is not None:
                observer.see_sublayer(before, x)
                before = x
            if i not in no_mlp:
                gate, up = layer.linears[2](self.norm(x, layer.mlp_norm)).chunk(2, -1)
                x = self._added(x, layer.linears[3](self.activation(gate).mul_(up)), layer.after_mlp_norm)
            if observer is not None:
                observer.see_sublayer(before, x)
                observer.see_layer(i + 1, x)
        return x

    def _states(self, layer: Layer, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Queries, keys and values [1, rows, heads + 2 kv heads, head dim] of the residual stream [rows, width] before
        a layer, its heads normalised where the model does that, and rotated by what ``rotations`` gives."""
        states = layer.linears[0](self.norm(x, layer.norm)).view(1, x.shape[0], -1, self.head_dim)
        both = states[:, :, : self.heads + self.kv_heads]
        if layer.head_norms is not None:
            both.copy_(F.rms_norm(both, (self.head_dim,), None, self.eps).mul_(layer.head_norms))
        if layer.rope:
            own = slice(layer.table * self.head_dim, (layer.table + 1) * self.head_dim)
            turned = both.roll(self.head_dim // 2, -1)
            both.mul_(cos[..., own]).add_(turned.mul_(sin[..., own]))  # rounded where the module rounds
        return states

    def _over(self, cache: KVBuffer, rows: int, mask: Mask) -> Exchange:
        """The exchange of ``rows`` new rows with those in the buffer, which they are written after."""
        written, keys, values = cache.places(self.kv_heads, self.head_dim, rows, self.like)
        attend, heads = self.attention(rows, cache.offset, mask), self.heads

        def exchange(i, states, kind):
            written[i].copy_(states[:, :, heads:])
            return attend(states[:, :, :heads], keys[i], values[i], kind)

        return exchange

    def attention(self, rows: int, start: int, mask: Mask) -> Callable:
        """A function of queries [1, rows, heads, dim], keys and values [1, kv heads, columns, dim] and a kind of layer
        that gives what attention gives, [rows, width].

        Heads that share keys are laid beneath each other as more rows, so that no key is copied for them. ``start``:
        rows in the buffer before these. Raises ValueError: several rows after others, and no mask."""
        groups, dim, kv_heads = self.heads // self.kv_heads, self.head_dim, self.kv_heads
        causal = mask is None and rows > 1
        if causal and start:
            raise ValueError("rows after others need a mask")
        together = groups > 1 and not causal
        masks = {kind: one if one is None or not together else one.repeat(1, 1, groups, 1) for kind, one in (
            mask.items() if isinstance(mask, dict) else ((kind, mask) for kind in self.kinds)
        )}
        attention, scale = F.scaled_dot_product_attention, self.scale

        def alone(queries, keys, values, kind):
            out = attention(queries.transpose(1, 2), keys, values, masks[kind], 0.0, causal, scale=scale,
                            enable_gqa=groups > 1)
            return out.transpose(1, 2).reshape(rows, -1)

        def grouped(queries, keys, values, kind):
            q = queries.view(rows, kv_heads, groups, dim).permute(1, 2, 0, 3).reshape(1, kv_heads, groups * rows, dim)
            out = attention(q, keys, values, masks[kind], scale=scale)  # kernels differ in how they lay it out
            return out.view(kv_heads, groups, rows, dim).permute(2, 0, 1, 3).reshape(rows, -1)

        return grouped if together else alone

    def rotations(self, positions: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and signed sines [rows, 1, tables * head dim] of these positions."""
        last = max(positions)
        if last >= len(self._cos):
            self._grow(last + 1)
        if isinstance(positions, range) or len(positions) == 1:
            where = slice(positions[0], positions[-1] + 1)
        else:
            where = torch.tensor(positions, device=self._cos.device)
        return self._cos[where], self._sin[where]

    def _grow(self, positions: int) -> None:
        """Tables [positions, 1, tables * head dim] from the model's own rotary embedding. The first half of the sines
        is negated, so that turning by half a head rotates."""
        count = -(-max(positions, 2 * len(self._cos)) // _TABLE) * _TABLE
        where = torch.arange(count, device=self.like.device)[None]
        pairs = [self._rotary(self.like, where, *filter(None, [kind])) for kind in self.tables]  # "" is no kind
        cos, sin = (torch.stack([one[0] for one in tables], 1) for tables in zip(*pairs))
        sin[..., : sin.shape[-1] // 2].neg_()
        self._cos, self._sin = cos.view(count, 1, -1), sin.view(count, 1, -1)
