"""Linear layers for native code: weights in blocks, as they are stored (``products.h``)."""

from __future__ import annotations

import ctypes

import torch
from torch import nn
from torch.nn import functional as F

from engines.libraries.hf import PreTrainedModel
from engines.model.native.native_code import NativeWeight, check, library
from engines.model.quantised_linear import GROUP, WeightGrid
from engines.model.weight_layouts import LAYOUTS, NAMES, LaidOut, is_unread

BLOCK = 32  # outputs that lie together
_STORED = ("float32", "bfloat16", "float16", "int8", "int4")  # as products.h numbers them
NATIVE = "native"  # the layout of a model whose layers are these


class NativeLinear(LaidOut):
    """An ``nn.Linear`` that native code multiplies, in float32: in half precision what goes in and comes out is rounded
    as by torch.

    Args:
        linear: the layer that it stands for, on the CPU.
        grid: its weight as it is stored; None: its own.

    Attributes:
        native: the weight, for native code.
        words: how the weight is stored, for display.
    """

    parts = ("blocks",)

    def __init__(self, linear: nn.Linear, grid: WeightGrid | None = None) -> None:
        super().__init__(linear)
        self.quantised, self.dtype = grid is not None, linear.weight.dtype
        self._bias = None if linear.bias is None else linear.bias.detach().float()
        if grid is None:
            numbers, wide = _narrowest(linear.weight.detach()), False
            self.words = stored = str(numbers.dtype).removeprefix("torch.")
            self.blocks = _blocks(F.pad(numbers, (0, -self.in_features % GROUP)), 1).view(torch.uint8)
        else:
            wide = not all(_holds(torch.float16, part) for part in (grid.scale, grid.zero))
            stored = f"int{grid.bits}"
            self.words = f"{stored} in groups of {grid.size}"
            self.blocks = _stored(grid, torch.float32 if wide else torch.float16)
        self.native = NativeWeight(
            self.blocks.data_ptr(), None if self._bias is None else self._bias.data_ptr(),
            self.blocks.shape[1] * GROUP, self.out_features, _STORED.index(stored), wide,
            grid.size if grid is not None else GROUP,
        )

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in], anew each time: the numbers that it was made of, to the last bit."""
        out = torch.empty(self.out_features, self.native.inputs)
        check(library().native_unpack(ctypes.byref(self.native), out.data_ptr(), torch.get_num_threads()))
        return out[:, : self.in_features].to(self.dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.rows(x.reshape(-1, self.in_features).contiguous())
        return rows.view(*x.shape[:-1], self.out_features)

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """``forward`` of x [rows, in], contiguous: [rows, out]."""
        return self._product(x, self.native)

    def part(self, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Outputs ``start`` to ``end`` of x [..., in]: [..., end - start]."""
        first = start // BLOCK * BLOCK
        rows = self._product(x.reshape(-1, self.in_features).contiguous(), self._part(first, end, True))
        return rows[:, start - first :].view(*x.shape[:-1], end - start)

    def _part(self, first: int, end: int, bias: bool) -> NativeWeight:
        """The outputs from the first of a block on."""
        at = self.blocks.data_ptr() + first * self.blocks.numel() // (-(-self.out_features // BLOCK) * BLOCK)
        own = self._bias.data_ptr() + 4 * first if bias and self._bias is not None else None
        native = self.native
        return NativeWeight(at, own, native.inputs, end - first, native.stored, native.wide, native.each)

    def _product(self, x: torch.Tensor, weight: NativeWeight) -> torch.Tensor:
        rows = x.float()
        if weight.inputs > self.in_features:
            rows = F.pad(rows, (0, weight.inputs - self.in_features))
        out = rows.new_empty(len(x), weight.outputs)
        threads = torch.get_num_threads()
        check(library().native_product(ctypes.byref(weight), len(x), rows.data_ptr(), out.data_ptr(), threads))
        return out.to(x.dtype)


class NativeEmbedding(nn.Module):
    """An embedding whose weight is that of a native layer.

    Args:
        linear: a language modelling head.
    """

    def __init__(self, linear: NativeLinear) -> None:
        super().__init__()
        self.linear = linear

    @property
    def weight(self) -> torch.Tensor:
        """The weight [vocabulary, width], anew each time."""
        return self.linear.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows [..., width] of ids [...]."""
        return self.rows(ids.reshape(-1)).view(*ids.shape, self.linear.in_features)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows [ids, width] of ids, int64 and contiguous. Raises IndexError: there is no such row."""
        native, count = self.linear.native, len(ids)
        if count and not 0 <= int(ids.min()) <= int(ids.max()) < native.outputs:
            raise IndexError("there is no such row in the embedding")
        out = torch.empty(count, native.inputs)
        check(library().native_rows(
            ctypes.byref(native), count, ids.data_ptr(), out.data_ptr(), torch.get_num_threads()))
        return out[:, : self.linear.in_features].to(self.linear.dtype)


LAYOUTS[NATIVE], NAMES[NATIVE] = NativeLinear, NATIVE


@torch.no_grad()
def share_embedding(model: PreTrainedModel) -> None:
    """Where a native head has the numbers of the embedding, look rows up in it, so that these lie in memory once."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    if not isinstance(head, NativeLinear) or type(embedding) is not nn.Embedding:
        return
    if is_unread(embedding.weight) or torch.equal(head.weight, embedding.weight):
        model.set_input_embeddings(NativeEmbedding(head))


def _narrowest(weight: torch.Tensor) -> torch.Tensor:
    """The same numbers in the smallest dtype that holds them all: those of a checkpoint in half precision are float32
    in memory."""
    for dtype in (torch.bfloat16, torch.float16) if weight.dtype == torch.float32 else ():
        if _holds(dtype, weight[:1]) and _holds(dtype, weight):
            return weight.to(dtype)
    return weight


def _holds(dtype: torch.dtype, numbers: torch.Tensor) -> bool:
    """Whether float32 numbers are the same in another dtype."""
    return torch.equal(numbers.to(dtype).float(), numbers)


def _stored(grid: WeightGrid, dtype: torch.dtype) -> torch.Tensor:
    """A grid in blocks: bytes."""
    if grid.bits == 4:
        eights = grid.numbers.view(len(grid.numbers), -1, 8).int()
        words = eights[..., 0]
        for place in range(1, 8):
            words = words | eights[..., place] << 4 * place
        numbers = _blocks(words, 8)
    else:
        numbers = _blocks(grid.numbers, 1)
    each = GROUP // grid.size
    scales = torch.stack([grid.scale, grid.zero], -1).to(dtype).flatten(1)
    parts = [numbers, _blocks(scales, GROUP // (2 * each))]
    return torch.cat([part.view(torch.uint8).flatten(2) for part in parts], 2)


def _blocks(numbers: torch.Tensor, inputs: int) -> torch.Tensor:
    """What there is for every ``inputs`` of a row, [out, in / inputs], as [blocks, groups, of a group, 32]; zeros
    after the last row."""
    missing = -len(numbers) % BLOCK
    if missing:
        numbers = torch.cat([numbers, numbers.new_zeros(missing, numbers.shape[1])])
    return numbers.view(-1, BLOCK, numbers.shape[1] * inputs // GROUP, GROUP // inputs).permute(0, 2, 3, 1).contiguous()
