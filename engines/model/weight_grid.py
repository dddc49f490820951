"""Weights of 4 and 8 bits: whole numbers with a scale for every 32 of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

GROUP = 32  # weights that share a scale
_BLOCK = 4096  # outputs that are quantised together: bounds memory


@dataclass(frozen=True, slots=True)
class WeightGrid:
    """A weight [out, in] as whole numbers: ``numbers * scale + zero``.

    Attributes:
        numbers: [out, in], of 4 bits uint8 from 0 to 15, of 8 bits int8.
        scale, zero: float32 [out, in / 32].
        bits: 4 or 8.
    """

    numbers: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    bits: int

    @property
    def unpacked(self) -> torch.Tensor:
        """The weight, float32 [out, in]."""
        grouped = self.numbers.float().view(*self.scale.shape, GROUP)
        return (grouped * self.scale[..., None] + self.zero[..., None]).view(self.numbers.shape)


def quantised(weight: torch.Tensor, bits: int) -> WeightGrid:
    """The nearest grid of a weight [out, in]. Of 4 bits: from the least to the largest number of a group, as torchao's
    int4 weight-only scheme has it; of 8: symmetric, as in a GGUF's Q8_0. Scales are rounded to float16 first, as in a
    GGUF file."""
    parts = [_quantised(rows.float(), bits) for rows in weight.detach().split(_BLOCK)]
    return WeightGrid(*(torch.cat(tensors) for tensors in zip(*parts)), bits=bits)


def _quantised(weight: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    groups = weight.view(len(weight), -1, GROUP)
    if bits == 4:
        zero, high = groups.aminmax(dim=-1)
        zero = _rounded(zero)
        scale, least, most, dtype = _rounded((high - zero) / 15), 0, 15, torch.uint8
    else:
        scale, least, most, dtype = _rounded(groups.abs().amax(-1) / 127), -127, 127, torch.int8
        zero = torch.zeros_like(scale)
    safe = torch.where(scale > 0, scale, 1.0)[..., None]
    numbers = ((groups - zero[..., None]) / safe).round_().clamp_(least, most)
    return numbers.to(dtype).view(weight.shape), scale, zero


def _rounded(numbers: torch.Tensor) -> torch.Tensor:
    halves = numbers.half().float()
    return torch.where(halves.isfinite(), halves, numbers)
