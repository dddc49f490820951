"""Weights of 4 and 8 bits: integers with a scale for every 32 of them, as a GGUF file would store them."""

from __future__ import annotations

import torch

from engines.model.native.native_linear import GROUP, StoredRows

_BLOCK = 4096  # outputs that are quantised together: bounds memory


def quantised(weight: torch.Tensor, bits: int) -> StoredRows:
    """A weight [out, in], quantised. 4 bits (Q4_1): from the smallest to the largest weight of a group, as in torchao's
    int4 weight-only scheme; 8 bits (Q8_0): symmetric. Scales are rounded to float16 first."""
    content = torch.cat([_quantised(rows.float(), bits) for rows in weight.detach().split(_BLOCK)])
    return StoredRows("Q4_1" if bits == 4 else "Q8_0", content.flatten().numpy(), *weight.shape)


def _quantised(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """The stored groups of some rows, uint8 [rows, groups, bytes]."""
    groups = weight.view(len(weight), -1, GROUP)
    if bits == 4:
        minimum, maximum = groups.aminmax(dim=-1, keepdim=True)
        minimum = _rounded(minimum)
        scale = _rounded((maximum - minimum) / 15)
        low, high = _nearest(groups - minimum, scale, 0, 15).to(torch.uint8).unflatten(2, (2, GROUP // 2)).unbind(2)
        parts = [scale.half(), minimum.half(), low | high << 4]
    else:
        scale = _rounded(groups.abs().amax(-1, keepdim=True) / 127)
        parts = [scale.half(), _nearest(groups, scale, -127, 127).to(torch.int8)]
    return torch.cat([part.contiguous().view(torch.uint8) for part in parts], 2)


def _nearest(groups: torch.Tensor, scale: torch.Tensor, low: int, high: int) -> torch.Tensor:
    return (groups / torch.where(scale > 0, scale, 1.0)).round_().clamp_(low, high)


def _rounded(numbers: torch.Tensor) -> torch.Tensor:
    halves = numbers.half().float()
    return torch.where(halves.isfinite(), halves, numbers)
