"""Linear layers that read the same input become one (``fuse``): queries, keys and values; gate and up.

The model's own modules keep their names and become slices of the fused layer, so that the module of transformers
(audits, other forwards, everything that is checked against it) computes what it did, from the same weights in the same
memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from engines.libraries.hf import PreTrainedModel

QKV, GATE_UP = "qkv_proj", "gate_up_proj"
_GROUPS = {"self_attn": (QKV, ("q_proj", "k_proj", "v_proj")), "mlp": (GATE_UP, ("gate_proj", "up_proj"))}


class LinearSlice(nn.Module):
    """Some outputs of a larger linear layer, in the place of the layer they were (``fuse``)."""

    def __init__(self, owner: nn.Module, name: str, start: int, end: int) -> None:
        super().__init__()
        self._whole = (owner, name)  # a tuple, so that it is not a module of this one
        self.start, self.end = start, end
        self.in_features, self.out_features = self.whole.in_features, end - start

    @property
    def whole(self) -> nn.Module:
        """The larger layer, as it is laid out now."""
        owner, name = self._whole
        return getattr(owner, name)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in]."""
        return self.whole.weight[self.start : self.end]

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias [out], None without."""
        bias = self.whole.bias
        return None if bias is None else bias[self.start : self.end]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        whole = self.whole
        return F.linear(x, self.weight, self.bias) if type(whole) is nn.Linear else whole.part(x, self.start, self.end)


def unread(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """What stands for a weight that is not read, since its layer will be replaced by one that needs it otherwise."""
    return torch.zeros((), dtype=dtype).expand(shape)


def is_unread(weight: torch.Tensor) -> bool:
    """Whether it is what ``unread`` gives."""
    return weight.dim() == 2 and weight.stride() == (0, 0) and weight.numel() > 1


def joined_with(name: str) -> list[str]:
    """The names of the weights that ``fuse`` joins with the one of this name, in its order."""
    owner, own, suffix = name.rsplit(".", 2) if name.count(".") > 1 else ("", "", "")
    parts = next((parts for _, parts in _GROUPS.values() if own in parts), None)
    return [f"{owner}.{part}.{suffix}" for part in parts] if parts is not None else [name]


def stored_names(name: str) -> tuple[str, ...]:
    """The names of the layers that the layer of this name was made of by ``fuse``: its own where that is none."""
    owner, _, own = name.rpartition(".")
    parts = next((parts for fused, parts in _GROUPS.values() if fused == own), (own,))
    return tuple(f"{owner}.{part}" if owner else part for part in parts)


def fusible(model: PreTrainedModel) -> bool:
    """Whether the layers have plain linear layers by the names of Llama, or joined ones by those of Phi 3."""
    return all(
        _plain(getattr(layer, block, None), [name]) or _plain(getattr(layer, block, None), names)
        for layer in model.model.layers for block, (name, names) in _GROUPS.items()
    )


def _plain(owner: nn.Module | None, names: Sequence[str]) -> bool:
    return all(type(getattr(owner, name, None)) is nn.Linear for name in names)


@torch.no_grad()
def fuse(model: PreTrainedModel) -> None:
    """Join queries, keys and values, and gate and up, in place: one group after the other, so that only one of them is
    in memory twice."""
    for layer in model.model.layers:
        for block, (name, names) in _GROUPS.items():
            if not hasattr(getattr(layer, block), name):
                _join(getattr(layer, block), name, names)


def _join(owner: nn.Module, name: str, names: tuple[str, ...]) -> None:
    linears = [getattr(owner, part) for part in names]
    weights = [linear.weight.detach() for linear in linears]
    if all(map(is_unread, weights)):
        weight = unread((sum(map(len, weights)), weights[0].shape[1]), weights[0].dtype)
    else:
        weight = torch.cat(weights)
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
