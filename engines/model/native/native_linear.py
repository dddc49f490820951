"""Linear layers for native code: weights in panels of 32 outputs, quantised as in the file (``quants.h``)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from engines.hub.kept_weights import Place, in_memory
from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.fused_layers import is_unread
from engines.model.native.native_code import NativeWeight, library

PANEL = 32  # outputs that are interleaved
GROUP = 32  # inputs that are unpacked together; a block of the types without super-blocks
_KINDS = ("float32", "bfloat16", "float16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
          "Q6_K", "IQ4_NL", "IQ4_XS", "3-bit")  # WeightType of quants.h
_WIDER = {"Q3_K": 4, "Q4_K": 4, "Q5_K": 4, "IQ4_XS": 2}  # more bytes for a super-block of an output than in a file
NARROW = "3-bit"  # the type of narrowed weights


@dataclass(frozen=True, slots=True)
class StoredRows:
    """A weight [outputs, inputs] as a GGUF file stores it.

    Attributes:
        kind: its type, such as "Q4_K".
        content: uint8, its bytes; they may be a part of a mapped file.
        order: int64 [outputs], which row is that of each output; None: they are in order.
    """

    kind: str
    content: np.ndarray
    outputs: int
    inputs: int
    order: np.ndarray | None = None


def stored_bytes(rows: StoredRows) -> int:
    """Bytes that a weight takes in memory. Sub-scales become bytes; files of some types pack them into fewer bits."""
    size = rows.content.nbytes + _WIDER.get(rows.kind, 0) * rows.outputs * rows.inputs // 256
    return size // rows.outputs * (-(-rows.outputs // PANEL) * PANEL)


class NativeLinear(nn.Module):
    """An ``nn.Linear`` that native code multiplies, in float32.

    Args:
        linear: the layer that it stands for, on the CPU.
        stored: its weight as it is stored, in parts of its outputs; none: its own.
        narrow: whether what is stored becomes integers of 3 bits with a scale for every 32.
        rounds: whether the inputs of products with what is stored as integers are rounded to 8 bits.
        place: gives the memory of what is stored.

    Attributes:
        native: the weight, for native code; the first of its parts.
        rounds: whether inputs are rounded.
        words: how the weight is stored, for display.
    """

    def __init__(
        self, linear: nn.Linear, stored: Sequence[StoredRows] = (), rounds: bool = False, narrow: bool = False,
        place: Place = in_memory,
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        self.rounds = rounds and bool(stored)
        if stored:
            kinds = [NARROW if narrow else part.kind for part in stored]
            self.words = " and ".join(dict.fromkeys(kinds))
            self._natives, self._panels = zip(*(self._repacked(*part, place) for part in zip(stored, kinds)))
        else:
            numbers = _narrowest(linear.weight.detach())
            self.words = str(numbers.dtype).removeprefix("torch.")
            panels = _panels(F.pad(numbers, (0, -self.in_features % GROUP))).view(torch.uint8).numpy()
            self._panels = (panels,)
            self._natives = (NativeWeight(panels=panels.ctypes.data, inputs=panels.shape[1], outputs=self.out_features,
                                          type=_KINDS.index(self.words)),)
        start = 0
        for native in self._natives:
            native.bias = None if self.bias is None else self.bias.data_ptr() + 4 * start
            start += native.outputs
        for native, following in pairwise(self._natives):
            native.next = ctypes.addressof(following)
        self.native = self._natives[0]
        self._read = self._made = None  # what ``part`` was given last, and its product

    def _repacked(self, part: StoredRows, kind: str, place: Place) -> tuple[NativeWeight, np.ndarray]:
        """A part of the weight, repacked to this type, and the memory that holds it."""
        native = NativeWeight(inputs=part.inputs, outputs=part.outputs, type=_KINDS.index(kind), int8=self.rounds)

        def fill(memory: np.ndarray) -> None:
            native.panels = memory.ctypes.data
            order = None if part.order is None else part.order.ctypes.data
            library().native_repack(ctypes.byref(native), _KINDS.index(part.kind), part.content.ctypes.data, order,
                                     torch.get_num_threads())

        panels = place(library().native_size(ctypes.byref(native)), fill)
        native.panels = panels.ctypes.data
        return native, panels

    @property
    def nbytes(self) -> int:
        """Bytes of the weight in memory."""
        return sum(panels.nbytes for panels in self._panels)

    @property
    def weight(self) -> torch.Tensor:
        """The weight as [out, in], anew each time: the numbers that it was made of, to the last bit."""
        out, start = torch.empty(self.out_features, self.native.inputs), 0
        for native in self._natives:
            library().native_unpack(ctypes.byref(native), out[start:].data_ptr(), torch.get_num_threads())
            start += native.outputs
        return out[:, : self.in_features]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, inputs = x.reshape(-1, self.in_features).contiguous(), self.native.inputs
        if inputs > self.in_features:
            rows = F.pad(rows, (0, inputs - self.in_features))
        out = rows.new_empty(len(rows), self.out_features)
        library().native_product(
            ctypes.byref(self.native), len(rows), rows.data_ptr(), out.data_ptr(), torch.get_num_threads())
        return out.view(*x.shape[:-1], self.out_features)

    def part(self, x: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Outputs ``start`` to ``end`` of x [..., in]: [..., end - start]. Parts of the same x that are asked for one
        after the other share its product, which is kept until the last of the outputs."""
        if self._read is not x:
            self._read, self._made = x, self(x)
        found = self._made[..., start:end]
        if end == self.out_features:
            self._read = self._made = None
        return found


class NativeEmbedding(nn.Module):
    """An embedding whose weight is that of a native layer.

    Args:
        linear: a language modelling head.
        scale: by which its rows are multiplied.
    """

    def __init__(self, linear: NativeLinear, scale: float = 1.0) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale

    @property
    def weight(self) -> torch.Tensor:
        """The weight [vocabulary, width], anew each time."""
        return self.linear.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows [..., width] of ids [...], int64. Raises IndexError: there is no such row."""
        native, flat = self.linear.native, ids.reshape(-1).contiguous()
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < native.outputs:
            raise IndexError("there is no such row in the embedding")
        out = torch.empty(len(flat), native.inputs)
        library().native_rows(
            ctypes.byref(native), len(flat), flat.data_ptr(), out.data_ptr(), torch.get_num_threads())
        rows = out[:, : self.linear.in_features].view(*ids.shape, self.linear.in_features)
        return rows if self.scale == 1 else rows * self.scale


def rows_of(embedding: nn.Module) -> tuple[dict[str, NativeWeight | torch.Tensor], float]:
    """Where native code looks rows of an embedding up, as fields of ``NativeModel``, and by what they are
    multiplied."""
    if isinstance(embedding, NativeEmbedding):
        return {"embedding_weight": embedding.linear.native}, embedding.scale
    return {"embedding": embedding.weight}, hf.embedding_scale(embedding)


@torch.inference_mode()
def make_native(model: nn.Module) -> None:
    """Replace the plain linear layers of a module on the CPU by native ones, in place."""
    for owner in list(model.modules()):
        for name, child in owner.named_children():
            if type(child) is nn.Linear:
                setattr(owner, name, NativeLinear(child))


def native_layers(model: nn.Module) -> list[NativeLinear]:
    """The native linear layers of a module."""
    return [module for module in model.modules() if isinstance(module, NativeLinear)]


def weight_bytes(model: nn.Module) -> int:
    """Bytes of all weights of a model; what several modules share counts once."""
    plain = {parameter.data_ptr(): parameter.nbytes for parameter in model.parameters()}
    return sum(layer.nbytes for layer in native_layers(model)) + sum(plain.values())


@torch.no_grad()
def share_embedding(model: PreTrainedModel) -> None:
    """Where a native head has the numbers of the embedding, look rows up in it, so that these lie in memory once."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    scale = hf.embedding_scale(embedding)
    if not isinstance(head, NativeLinear) or scale is None:
        return
    if is_unread(embedding.weight) or torch.equal(head.weight, embedding.weight):
        model.set_input_embeddings(NativeEmbedding(head, scale))


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


def _panels(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers [out, in] as [panels, in, 32], padded with rows of zeros."""
    missing = -len(numbers) % PANEL
    if missing:
        numbers = torch.cat([numbers, numbers.new_zeros(missing, numbers.shape[1])])
    return numbers.view(-1, PANEL, numbers.shape[1]).transpose(1, 2).contiguous()
