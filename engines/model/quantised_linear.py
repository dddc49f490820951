"""Linear layers whose weights are whole numbers of 4 or 8 bits with scales, multiplied as they are stored.

A forward of one row reads every weight once, so it takes as long as the memory takes to give them: 4 bits with their
scales are a third of bfloat16. torch has two operations for it on the CPU. Both are private, so they are probed
(``works``), and both are fast in bfloat16 only: in float32 and float16 the same names run a loop of single numbers,
ten to fifty times slower. So what goes into a product and what comes out of it is rounded to bfloat16, and so are the
scales; sums are float32. Between the products everything keeps the model's dtype.

A row comes out the same to the last bit, however many rows there are (``batch_invariant`` tries it).

Int4: ``w = (q - 8) scale + zero`` in groups of 32, the grid of a GGUF's Q4_0, Q4_1 and Q4_K.
Int8 in groups: two layers of 4 bits, ``w = (high - 8) 16 scale + (low - 8) scale + 8 scale``: the grid of Q8_0.
Int8 in rows: one scale for each output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import nn

from engines.model.weight_layouts import LaidOut

GROUP = 32  # weights that share a scale
_ROUNDING = 0.02  # of the largest output, in a probe: bfloat16 has 8 bits
_OUTPUTS = 16  # the operations take multiples of it
_TRIED = 1 << 14  # inputs that a probe has at least, of a layer of more
_BLOCK = 4096  # outputs that are quantised together: bounds memory


@dataclass(frozen=True, slots=True)
class GridForm:
    """How the numbers of a grid are stored.

    Attributes:
        bits: 4 or 8.
        size: inputs that share a scale, 32 or 16.
        wide: whether float16 may not hold its scales.
    """

    bits: int
    size: int = GROUP
    wide: bool = False

    @staticmethod
    def joined(forms: list[GridForm]) -> GridForm:
        """The form that holds grids of all of these forms."""
        return GridForm(max(one.bits for one in forms), min(one.size for one in forms), any(one.wide for one in forms))


@dataclass(frozen=True, slots=True)
class WeightGrid:
    """A weight [out, in] as whole numbers: ``numbers * scale + zero``.

    Attributes:
        numbers: [out, in], of 4 bits uint8 from 0 to 15, of 8 bits int8.
        scale, zero: float32 [out, in / size].
        bits: 4 or 8.
        size: inputs that share a scale, 32 or 16.
    """

    numbers: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor
    bits: int
    size: int = GROUP

    @property
    def unpacked(self) -> torch.Tensor:
        """The weight, float32 [out, in]."""
        grouped = self.numbers.float().view(*self.scale.shape, self.size)
        return (grouped * self.scale[..., None] + self.zero[..., None]).view(self.numbers.shape)

    def rows(self, where: torch.Tensor) -> WeightGrid:
        """These outputs, in this order."""
        return replace(self, numbers=self.numbers[where], scale=self.scale[where], zero=self.zero[where])

    @staticmethod
    def joined(grids: list[WeightGrid]) -> WeightGrid:
        """The outputs of several layers, one after the other, in the form that holds them all."""
        if len(grids) == 1:
            return grids[0]
        form = GridForm.joined([GridForm(grid.bits, grid.size) for grid in grids])
        scales = {
            name: torch.cat([getattr(grid, name).repeat_interleave(grid.size // form.size, 1) for grid in grids])
            for name in ("scale", "zero")
        }
        numbers = torch.cat([grid.numbers.to(torch.int8 if form.bits == 8 else torch.uint8) for grid in grids])
        return WeightGrid(numbers, **scales, bits=form.bits, size=form.size)


def quantised(weight: torch.Tensor, bits: int) -> WeightGrid:
    """The nearest grid of a weight [out, in] in groups of 32. Of 4 bits: from the least to the largest number of a
    group, as torchao's int4 weight-only scheme has it; of 8: symmetric, as in a GGUF's Q8_0. Scales are rounded to
    float16 first, as in a GGUF file."""
    parts = [_quantised(rows.float(), bits) for rows in weight.detach().split(_BLOCK)]
    return WeightGrid.joined(parts)


def _quantised(weight: torch.Tensor, bits: int) -> WeightGrid:
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
    return WeightGrid(numbers.to(dtype).view(weight.shape), scale, zero, bits)


def _rounded(numbers: torch.Tensor) -> torch.Tensor:
    halves = numbers.half().float()
    return torch.where(halves.isfinite(), halves, numbers)


class QuantisedLinear(LaidOut):
    """What quantised layers have in common: ``_product`` of x [rows, in], bfloat16, is [rows, out]; ``forward`` takes
    and gives the dtype of the layer that it stands for.

    Attributes:
        words: for display.
    """

    quantised = True
    words: str

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        self.dtype = linear.weight.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows(x.reshape(-1, self.in_features).contiguous())
        return rows.view(*x.shape[:-1], self.out_features)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """``forward`` of x [rows, in], contiguous: [rows, out]. With few operations: at one row, starting them takes a
        third of the time."""
        out = self._product(x.bfloat16())
        out = out.float() if x.dtype == torch.float32 else out.to(x.dtype)
        return out if self.bias is None else out + self.bias

    def add(self, stream: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        if self.bias is not None or stream.dtype != torch.float32:
            return super().add(stream, x)
        return stream + self._product(x.bfloat16())  # the sum converts, to the same bits

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in]: what the operation makes of the unit vectors, anew each time."""
        return self._product(torch.eye(self.in_features, dtype=torch.bfloat16)).t().to(self.dtype)


class Int4Linear(QuantisedLinear):
    """A weight of 4 bits in groups of 32.

    Args:
        linear: the layer that it stands for: its bias, and its sizes.
        grid: of 4 bits.
    """

    words = "int4"
    parts = ("packed", "scales")

    def __init__(self, linear: nn.Linear, grid: WeightGrid) -> None:
        super().__init__(linear)
        self.packed, self.scales = _packed(grid.numbers), _scales(grid.scale, grid.zero + 8 * grid.scale)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.packed, GROUP, self.scales)


class Int8GroupsLinear(QuantisedLinear):
    """A weight of 8 bits in groups of 32, as the sum of two weights of 4 bits. Arguments are those of ``Int4Linear``
    with a grid of 8 bits."""

    words = "int8 in groups"
    parts = ("high", "low", "high_scales", "low_scales")

    def __init__(self, linear: nn.Linear, grid: WeightGrid) -> None:
        super().__init__(linear)
        numbers = grid.numbers.short() + 128
        self.high, self.low = _packed(numbers >> 4), _packed(numbers & 15)
        self.high_scales = _scales(16 * grid.scale, grid.zero)
        self.low_scales = _scales(grid.scale, 8 * grid.scale)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        product = torch.ops.aten._weight_int4pack_mm_for_cpu
        high = product(x, self.high, GROUP, self.high_scales).float()
        return high.add_(product(x, self.low, GROUP, self.low_scales))


class Int8RowsLinear(QuantisedLinear):
    """The weight of a layer in 8 bits, one scale for each output."""

    words = "int8"
    parts = ("numbers", "scales")

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        weight = linear.weight.detach()
        self.scales = (weight.float().abs().amax(1).clamp(min=1e-30) / 127).bfloat16()
        parts = zip(weight.split(_BLOCK), self.scales.split(_BLOCK))
        self.numbers = torch.cat([
            (rows.float() / scales.float()[:, None]).round_().clamp_(-127, 127).to(torch.int8) for rows, scales in parts
        ])

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in], anew each time."""
        return (self.numbers.float() * self.scales.float()[:, None]).to(self.dtype)

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._weight_int8pack_mm(x, self.numbers, self.scales)


def _packed(numbers: torch.Tensor) -> torch.Tensor:
    """uint8 [out, in] of 4 bits as the operation reads them."""
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers.int(), 1)


def _scales(scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """bfloat16 [groups, out, 2] of float32 [out, groups]."""
    return torch.stack([scale.t(), zero.t()], -1).bfloat16().contiguous()


@cache
def works(kind: type[QuantisedLinear], inputs: int, outputs: int) -> bool:
    """Whether this torch computes such a layer on this processor, tried on fewer outputs, and fewer of many inputs."""
    if inputs % GROUP or outputs % _OUTPUTS:  # with other sizes torch may read beyond the weight
        return False
    inputs = min(inputs, _TRIED + inputs % _TRIED)
    try:
        with torch.inference_mode(), torch.random.fork_rng(devices=()):
            linear = nn.Linear(inputs, 64 + outputs % 64, bias=False, dtype=torch.bfloat16)
            x = torch.randn(3, inputs, dtype=torch.bfloat16)
            if kind is Int8RowsLinear:
                layer = kind(linear)
                weight = layer.weight.float()
            else:
                grid = quantised(linear.weight, 4 if kind is Int4Linear else 8)
                layer, weight = kind(linear, grid), grid.unpacked
            expected, found = x.float() @ weight.t(), layer(x).float()
            return bool((found - expected).abs().max() <= _ROUNDING * expected.abs().max())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False
