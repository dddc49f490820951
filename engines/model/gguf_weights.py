"""The weights of a GGUF file as transformers names and lays them out, unpacked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from engines.hub.gguf_config import family
from engines.hub.gguf_file import GgufFile, GgufTensor
from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.native.native_linear import StoredRows
from engines.model.quantised_linear import GROUP, GridForm, WeightGrid
from engines.model.weight_layouts import joined_with, room, unread

_AT_ONCE, _OUTPUTS = 1 << 19, 2048  # numbers that are unpacked together, and of how many outputs at most: so few that
# what is between stays in the processor's cache, so many that threads seldom wait for Python's lock


def unpacked(
    file: GgufFile, model: PreTrainedModel, dtype: torch.dtype, transposed: bool = False,
    left: Collection[str] = (),
) -> dict[str, torch.Tensor]:
    """All weights by the names of ``model``'s parameters, which may lie on the meta device; its shapes are not checked.

    Each is computed in float32 from the stored blocks, then rounded to ``dtype``. Those of linear layers lie in memory
    as ``weight_layouts.room`` says, so that joining or transposing them later copies nothing. Those whose names are
    ``left`` are not read (``weight_layouts.unread``).
    """
    kind = family(file)
    content = file.content()
    heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
    names = _names(file, model)
    tensors = {names[tensor.name]: tensor for tensor in file.tensors if tensor.name in names}
    not_read = {name: unread(tensors.pop(name).shape, dtype) for name in left if name in tensors}
    found = room({name: tensor.shape for name, tensor in tensors.items()}, model, dtype, transposed)

    def unpack(name: str) -> None:
        tensor = tensors[name]
        offset = kind.norm_offset if tensor.name.endswith("norm.weight") else 0
        _unpack(tensor, content, _turned_heads(tensor, kind.rotated, heads, kv_heads), offset, found[name])

    # A thread for each tensor, not several that wait for each other at each of ten thousand small operations.
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            list(pool.map(unpack, sorted(tensors, key=lambda name: -tensors[name].count)))
    finally:
        torch.set_num_threads(threads)
    return found | not_read


def _unpack(tensor: GgufTensor, content: np.ndarray, turned: int, offset: float, weight: torch.Tensor) -> None:
    """Write a tensor's numbers minus ``offset`` into ``weight``, of the same shape and in any layout."""
    stored = content[tensor.begin : tensor.begin + tensor.size]
    if tensor.kind not in _UNPACK:
        numbers = _dequantised(stored.reshape(*tensor.shape[:-1], -1), tensor.kind)
        weight.copy_(_in_order(numbers.view(tensor.shape), turned) - offset)
        return
    size, unpack = _UNPACK[tensor.kind]
    rows = _in_order(torch.from_numpy(stored.copy()).view(tensor.shape[0], -1), turned)
    rows = rows.reshape(tensor.count // tensor.shape[-1], -1)  # a bias is a single one
    if weight.is_contiguous():
        count = max(1, _AT_ONCE // tensor.shape[-1])
        for part, place in zip(rows.split(count), weight.view(len(rows), -1).split(count)):
            place.copy_(unpack(part.reshape(-1, size, 1)).view(place.shape))
        if offset:
            weight -= offset
        return
    # Bytes are transposed before they become numbers of four times their size and more.
    blocks = rows.view(len(rows), -1, size).permute(1, 2, 0).contiguous()
    places = weight.t().unflatten(0, (len(blocks), -1))
    for outputs, their_places in zip(blocks.split(_OUTPUTS, 2), places.split(_OUTPUTS, 2)):
        count = max(1, _AT_ONCE // their_places[0].numel())
        for part, place in zip(outputs.split(count), their_places.split(count)):
            place.copy_(unpack(part))


def _dequantised(stored: np.ndarray, kind: str) -> torch.Tensor:
    """What gguf's own code makes of rows of bytes [rows, bytes]: float32 [rows, n]."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return torch.from_numpy(dequantize(stored, GGMLQuantizationType[kind]))


class StoredGrids:
    """The weights of a file that are whole numbers with a scale for every 32 or 16 of them: ``quantise.Stored``.

    Args:
        file: the file.
        model: what was loaded from it, with its layers as transformers names them.
    """

    def __init__(self, file: GgufFile, model: PreTrainedModel) -> None:
        self._rotated = family(file).rotated
        self._heads = model.config.num_attention_heads, model.config.num_key_value_heads
        names = _names(file, model)
        self._tensors = {names[tensor.name]: tensor for tensor in file.tensors if tensor.name in names}
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if head is not None and head.weight is embedding.weight:  # the file has it once
            by_weight = [name for name, weight in model.named_parameters(remove_duplicate=False)
                         if weight is head.weight]
            tensor = next((self._tensors[name] for name in by_weight if name in self._tensors), None)
            self._tensors |= {name: tensor for name in by_weight if tensor is not None}
        self._content = file.content()

    def kind(self, name: str) -> str:
        """The type in which the weight of a layer of this name is stored, such as "Q4_1"; "" where it is not."""
        tensor = self._tensors.get(f"{name}.weight")
        return tensor.kind if tensor is not None else ""

    def form(self, name: str) -> GridForm | None:
        """The form of the weight of a layer of this name; None where it is stored otherwise."""
        found = _GRIDS.get(self.kind(name))
        return found.form if found is not None else None

    def grid(self, name: str) -> WeightGrid:
        """The weight of a layer of this name that has a form."""
        tensor = self._tensors[f"{name}.weight"]
        return self._read(tensor)

    def rows(self, name: str) -> StoredRows:
        """The same as it is stored, in the mapped file."""
        tensor = self._tensors[f"{name}.weight"]
        (outputs, inputs), order = tensor.shape, None
        if turned := _turned_heads(tensor, self._rotated, *self._heads):
            order = halves_apart(torch.arange(outputs)[:, None], turned)[:, 0].contiguous().numpy()
        content = self._content[tensor.begin : tensor.begin + tensor.size]
        return StoredRows(tensor.kind, content, outputs, inputs, order)

    def numbers(self, name: str, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Some numbers of that weight, float32."""
        stored = self.rows(name)
        where = rows.numpy() if stored.order is None else stored.order[rows.numpy()]
        found = _dequantised(stored.content.reshape(stored.outputs, -1)[where], stored.kind)
        return found[torch.arange(len(where)), columns]

    def replacing(self, model: PreTrainedModel) -> list[str]:
        """Names of the weights in whose place ``quantise`` needs nothing but their grids: those of linear layers, where
        all that are joined with them are stored on grids, and of the embedding."""
        linear = {id(module.weight) for module in model.modules() if type(module) is nn.Linear}
        embedding = model.get_input_embeddings()
        if hf.embedding_scale(embedding) is not None:
            linear.add(id(embedding.weight))
        else:  # no other becomes native
            linear.discard(id(embedding.weight))
        return [name for name, weight in model.named_parameters(remove_duplicate=False)
                if id(weight) in linear and all(self.form(part.removesuffix(".weight")) for part in joined_with(name))]

    def _read(self, tensor: GgufTensor) -> WeightGrid:
        kind, (outputs, inputs) = _GRIDS[tensor.kind], tensor.shape
        stored = torch.from_numpy(self._content[tensor.begin : tensor.begin + tensor.size].copy())
        numbers, scale, zero = kind.numbers(tensor.kind, stored.view(-1, kind.block))
        groups = (outputs, inputs // kind.form.size)
        grid = WeightGrid(numbers.reshape(outputs, inputs), scale.reshape(groups), zero.reshape(groups),
                          kind.form.bits, kind.form.size)
        turned = _turned_heads(tensor, self._rotated, *self._heads)
        return grid.rows(halves_apart(torch.arange(outputs)[:, None], turned)[:, 0]) if turned else grid


def _turned_heads(tensor: GgufTensor, rotated: bool, heads: int, kv_heads: int) -> int:
    """How many heads a tensor has whose rows are stored in another order; 0: it is stored as it is used."""
    if rotated and ".attn_q." in tensor.name:
        return heads
    return kv_heads if rotated and ".attn_k." in tensor.name else 0


def halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the order of rows in which llama.cpp's converter stores Q and K: it has the two halves of each head's
    rotation interleaved. ``weight`` [heads * size, ...]."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def _in_order(rows: torch.Tensor, turned: int) -> torch.Tensor:
    return halves_apart(rows, turned) if turned else rows


def _halves(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Numbers of 4 bits: the low halves of a block's bytes from ``at`` on, then the high ones: [blocks, 32, n]."""
    return torch.cat([blocks[:, at:] & 15, blocks[:, at:] >> 4], 1)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a place of each block, as float32 [blocks, 1, n]."""
    low, high = blocks[:, at : at + 1].short(), blocks[:, at + 1 : at + 2].short()
    return (low | high << 8).view(torch.float16).float()


def _viewed(blocks: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Bytes [blocks, size, n] as one number each, float32 [blocks, 1, n]."""
    count, size, n = blocks.shape
    return blocks.transpose(1, 2).reshape(-1, size).view(dtype).float().view(count, n, 1).transpose(1, 2)


# The usual types in a third of the time that the gguf package takes (135M parameters: 0.7 s, not 2, on one core): bytes
# of a block (or of a number), and its numbers, float32 [blocks, 32 or 1, n], from n blocks beside each other: uint8
# [blocks, bytes, n].
_UNPACK: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "F32": (4, lambda b: _viewed(b, torch.float32)),
    "F16": (2, lambda b: _viewed(b, torch.float16)),
    "BF16": (2, lambda b: _viewed(b, torch.bfloat16)),
    "Q4_0": (18, lambda b: (_halves(b, 2).float() - 8) * _half(b, 0)),
    "Q4_1": (20, lambda b: _halves(b, 4).float().mul_(_half(b, 0)).add_(_half(b, 2))),
    "Q8_0": (34, lambda b: b[:, 2:].view(torch.int8).float().mul_(_half(b, 0))),
}


_Numbers = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Grid:
    """A type whose numbers are whole ones with a scale.

    Attributes:
        block: bytes of a block.
        read: numbers (None: those that give what gguf's own code unpacks), scales and zeros of a ``WeightGrid``, from
            blocks, uint8 [blocks, bytes].
    """

    block: int
    form: GridForm
    read: Callable[[torch.Tensor], tuple[torch.Tensor | None, torch.Tensor, torch.Tensor]]

    def numbers(self, kind: str, blocks: torch.Tensor) -> _Numbers:
        """Numbers, scales and zeros [blocks, n] of blocks of the type of this name."""
        numbers, scale, zero = self.read(blocks)
        if numbers is None:
            weight = _dequantised(blocks.numpy(), kind).view(*scale.shape, -1)
            safe = torch.where(scale == 0, 1.0, scale)[..., None]
            numbers = ((weight - zero[..., None]) / safe).round_().to(torch.int8)
        return numbers, scale, zero


def _float16(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a place of each block [blocks, bytes], as float32 [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: torch.Tensor) -> torch.Tensor:
    """Bytes [blocks, n] as their low halves, then their high ones [blocks, 2 n]."""
    return torch.cat([packed & 15, packed >> 4], 1)


def _four_bits(least: Callable[[torch.Tensor], torch.Tensor], at: int) -> Callable[[torch.Tensor], _Numbers]:
    """A type of 32 numbers of 4 bits from a place on, a scale before them, and ``least`` as their zero."""
    return lambda b: (_nibbles(b[:, at:]), _float16(b, 0), least(b))


def _five_bits(packed: torch.Tensor) -> torch.Tensor:
    """Bytes [blocks, 20]: the fifth bits of 32 numbers, then the others as ``_nibbles``; int8 [blocks, 32]."""
    fifth = (packed[:, :4, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(1)
    return (_nibbles(packed[:, 4:]) | fifth << 4).to(torch.int8)


def _k_scales(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zeros of blocks of 8 groups [blocks, 8], whose scales and least numbers have 6 bits each."""
    packed = blocks[:, 4:16]
    first, second, rest = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = torch.cat([first & 63, (rest & 15) | (first >> 6 << 4)], 1)
    least = torch.cat([second & 63, (rest >> 4) | (second >> 6 << 4)], 1)
    return scale.float() * _float16(blocks, 0), -(least.float() * _float16(blocks, 2))


def _q4_k(blocks: torch.Tensor) -> _Numbers:
    pairs = blocks[:, 16:].reshape(-1, 4, GROUP)
    return torch.stack([pairs & 15, pairs >> 4], 2), *_k_scales(blocks)


def _q2_k(blocks: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
    packed = blocks[:, :16]
    return None, (packed & 15).float() * _float16(blocks, 80), -((packed >> 4).float() * _float16(blocks, 82))


def _q3_k(blocks: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
    low, high = _nibbles(blocks[:, 96:104]), blocks[:, 104:108]
    high = torch.cat([high >> 2 * place & 3 for place in range(4)], 1)
    return _scaled(((low | high << 4).float() - 32) * _float16(blocks, 108))


def _iq4_xs(blocks: torch.Tensor) -> tuple[None, torch.Tensor, torch.Tensor]:
    low = torch.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], 2).flatten(1)
    high = torch.stack([blocks[:, 2:4] >> 2 * place & 3 for place in range(4)], 2).flatten(1)
    return _scaled(((low | high << 4).float() - 32) * _float16(blocks, 0))


def _scaled(scale: torch.Tensor, numbers: torch.Tensor | None = None):
    """Numbers, scales and zeros of a type without zeros."""
    return numbers, scale, torch.zeros_like(scale)


_BYTES, _BYTES_16 = GridForm(8), GridForm(8, 16, wide=True)
_GRIDS = {
    "Q4_0": _Grid(18, GridForm(4), _four_bits(lambda b: -8 * _float16(b, 0), 2)),
    "Q4_1": _Grid(20, GridForm(4), _four_bits(lambda b: _float16(b, 2), 4)),
    "Q5_0": _Grid(22, _BYTES, lambda b: _scaled(_float16(b, 0), _five_bits(b[:, 2:]) - 16)),
    "Q5_1": _Grid(24, _BYTES, lambda b: (_five_bits(b[:, 4:]), _float16(b, 0), _float16(b, 2))),
    "Q8_0": _Grid(34, _BYTES, lambda b: _scaled(_float16(b, 0), b[:, 2:].view(torch.int8))),
    "Q2_K": _Grid(84, _BYTES_16, _q2_k),
    "Q3_K": _Grid(110, _BYTES_16, _q3_k),
    "Q4_K": _Grid(144, GridForm(4, wide=True), _q4_k),
    "Q5_K": _Grid(176, GridForm(8, wide=True), lambda b: (None, *_k_scales(b))),
    "Q6_K": _Grid(210, _BYTES_16, lambda b: _scaled(b[:, 192:208].view(torch.int8).float() * _float16(b, 208))),
    "IQ4_NL": _Grid(18, _BYTES, lambda b: _scaled(_float16(b, 0))),
    "IQ4_XS": _Grid(136, GridForm(8, wide=True), _iq4_xs),
}
GRID_KINDS = frozenset(_GRIDS)


@lru_cache(maxsize=4)
def _their_names(architecture: str, layers: int):
    """The table of the gguf package from the names of a family's tensors in transformers to those in a file."""
    from gguf.constants import MODEL_ARCH_NAMES
    from gguf.tensor_mapping import get_tensor_name_map

    return get_tensor_name_map(next(key for key, name in MODEL_ARCH_NAMES.items() if name == architecture), layers)


def _names(file: GgufFile, model: PreTrainedModel) -> dict[str, str]:
    """A parameter's name for each tensor's."""
    theirs, found = _their_names(file.architecture, model.config.num_hidden_layers), {}
    for name in model.state_dict():
        stem, _, suffix = name.rpartition(".")
        if (ggml := theirs.get_name(stem)) is not None:
            found[f"{ggml}.{suffix}"] = name
    return found
