"""Linear layers that read the same input, as one: queries, keys and values; gate and up.

The model's own modules keep their names. Each becomes a part of the fused layer, so that the module of transformers
(audits, cosines of other families, everything that is checked against it) computes what it did, from the same weights
in the same memory.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers import PreTrainedModel

from engines.model.weight_layouts import LinearSlice

QKV, GATE_UP = "qkv_proj", "gate_up_proj"
_GROUPS = {"self_attn": (QKV, ("q_proj", "k_proj", "v_proj")), "mlp": (GATE_UP, ("gate_proj", "up_proj"))}


def fusible(model: PreTrainedModel) -> bool:
    """Whether the layers have plain linear layers by the names of Llama."""
    return all(
        type(getattr(getattr(layer, block, None), name, None)) is nn.Linear
        for layer in model.model.layers for block, (_, names) in _GROUPS.items() for name in names
    )


@torch.no_grad()
def fuse(model: PreTrainedModel) -> None:
    """Replace the layers of each group, in place and one group after the other, so that only one is in memory twice."""
    for layer in model.model.layers:
        for block, (name, names) in _GROUPS.items():
            _join(getattr(layer, block), name, names)


def _join(owner: nn.Module, name: str, names: tuple[str, ...]) -> None:
    linears = [getattr(owner, part) for part in names]
    weight = torch.cat([linear.weight for linear in linears])
    biases = [linear.bias for linear in linears]
    joined = nn.Linear(1, 1, bias=False, device="meta")
    joined.in_features, joined.out_features = weight.shape[1], weight.shape[0]
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if biases[0] is not None:
        joined.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    setattr(owner, name, joined)
    start = 0
    for part, linear in zip(names, linears):
        setattr(owner, part, LinearSlice(owner, name, start, start + linear.out_features))
        start += linear.out_features
