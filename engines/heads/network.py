"""What a head of the EAGLE family computes: one decoder layer over token embeddings and features of the target.

Column t of a text has the target's feature of row t and the embedding of token t + 1, and predicts token t + 2 (Li et
al. 2024, EAGLE; 2025, EAGLE-3). A drafted column has the head's own output of the column before it as its feature. The
drafter and the training share everything here but the attention, which the one computes over cached keys and values and
the other over unrolled steps.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from engines.heads.head_config import EAGLE3, HeadConfig


class HeadNetwork(nn.Module):
    """The weights of a head, all but the embeddings, and its operations. Names of parameters are those of vLLM's
    speculators, the layer's without ``layers.0`` and without ``self_attn`` and ``mlp``."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
        width, inner = config.width, config.heads * config.head_dim
        entry = (2 if config.family == EAGLE3 else 1) * width
        taps = len(config.layers) * config.target_width if config.family == EAGLE3 else 2 * width
        bias, kv = config.attention_bias, config.kv_heads * config.head_dim
        self.fc = nn.Linear(taps, width, bias=config.family != EAGLE3)
        self.q_proj = nn.Linear(entry, inner, bias=bias)
        self.k_proj = nn.Linear(entry, kv, bias=bias)
        self.v_proj = nn.Linear(entry, kv, bias=bias)
        self.o_proj = nn.Linear(inner, width, bias=False)
        self.gate_proj = nn.Linear(width, config.mlp, bias=False)
        self.up_proj = nn.Linear(width, config.mlp, bias=False)
        self.down_proj = nn.Linear(config.mlp, width, bias=False)
        names = ["post_attention_layernorm"]
        if config.family == EAGLE3:
            names += ["input_layernorm", "hidden_norm", "norm"]
        for name in names:
            self.register_parameter(name, nn.Parameter(torch.ones(width)))
        if config.tap_norm:
            self.register_parameter("tap_norm", nn.Parameter(torch.ones(taps)))

    def fused(self, taps: torch.Tensor) -> torch.Tensor:
        """Features [..., width] of the target's states [..., taps * target width]."""
        if self.config.family != EAGLE3:
            return taps
        if self.config.tap_norm == "whole":
            taps = self._norm(taps, self.tap_norm)
        elif self.config.tap_norm:
            size = self.config.target_width
            normed = F.rms_norm(taps.unflatten(-1, (-1, size)), (size,), None, self.config.eps)
            taps = normed.flatten(-2) * self.tap_norm
        return self.fc(taps)

    def entry(self, embedded: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What attention reads, and the residual stream it adds to, of embeddings and features [..., width]."""
        if self.config.family != EAGLE3:
            both = self.fc(torch.cat([embedded, features], -1)).to(features.dtype)  # products may be bfloat16
            return both, both  # no norm before the attention
        normed = self._norm(features, self.hidden_norm)
        read = torch.cat([self._norm(embedded, self.input_layernorm), normed], -1)
        return read, normed if self.config.norm_before_residual else features

    def heads(
        self, read: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [..., heads, rows, dim], keys and values [..., kv heads, rows, dim] of what attention reads."""
        queries, keys, values = (
            project(read).unflatten(-1, (-1, self.config.head_dim)).transpose(-3, -2)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        return rotate(queries, rotation), rotate(keys, rotation), values

    def leave(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """The layer's output [..., rows, width], of what attention gives [..., heads, rows, dim]."""
        stream = residual + self.o_proj(attended.transpose(-3, -2).flatten(-2))
        x = self._norm(stream, self.post_attention_layernorm)
        return stream + self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))

    def final(self, output: torch.Tensor) -> torch.Tensor:
        """What the language modelling head reads, of the layer's output [..., width]."""
        return self._norm(output, self.norm) if self.config.family == EAGLE3 else output

    def fed_back(self, output: torch.Tensor) -> torch.Tensor:
        """The feature of the next step, of the layer's output [..., width]."""
        return self.final(output) if self.config.norm_output else output

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.eps)


class Rotation:
    """Tables of a rotary embedding that grow as positions are asked for. ``turning``: by half a head, for which the
    first half of the sines is negated, as native code rotates."""

    def __init__(self, theta: float, dim: int, like: torch.Tensor, turning: bool = False) -> None:
        exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=like.device) / dim
        self._frequencies, self._like, self._turning = theta**-exponents, like, turning
        self._cos = self._sin = like.new_empty(0, dim)

    def at(self, positions: Sequence[int] | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [positions, dim]."""
        where = torch.as_tensor(positions, device=self._like.device)
        cos, sin = self.tables(int(where.max()) + 1 if len(where) else 0)
        return cos[where], sin[where]

    def tables(self, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of at least so many positions."""
        if positions > len(self._cos):
            count = -(-positions // 1024) * 1024
            angles = torch.arange(count, dtype=torch.float64, device=self._like.device)[:, None] * self._frequencies
            angles = torch.cat([angles, angles], -1)
            self._cos, self._sin = angles.cos().to(self._like.dtype), angles.sin().to(self._like.dtype)
            if self._turning:
                self._sin[:, : self._sin.shape[1] // 2].neg_()
        return self._cos, self._sin


def rotate(states: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """States [..., rows, dim] turned by cosines and sines [rows, dim], halves against each other as Llama does."""
    cos, sin = rotation
    first, second = states.chunk(2, -1)
    return states * cos + torch.cat([-second, first], -1) * sin
