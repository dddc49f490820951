"""The weights of a GGUF file as transformers names and lays them out."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from engines.hub.gguf_config import family
from engines.hub.gguf_file import GgufFile, GgufTensor
from engines.libraries import hf
from engines.libraries.hf import PreTrainedModel
from engines.model.fused_layers import joined_with, unread
from engines.model.native.native_linear import StoredRows


def _dequantised(stored: np.ndarray, kind: str) -> torch.Tensor:
    """What gguf's own code makes of rows of bytes [rows, bytes]: float32 [rows, n]."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    numbers = dequantize(stored, GGMLQuantizationType[kind])
    return torch.from_numpy(numbers if numbers.flags.writeable else numbers.copy())  # of float32: the file itself


class StoredWeights:
    """The weights of a file: all of them unpacked, and those that are integers with a scale for every 32 or 16 of them
    as they are stored. ``model`` has their names in transformers; it may lie on the meta device."""

    def __init__(self, file: GgufFile, model: PreTrainedModel) -> None:
        self._family = family(file)
        self._heads = model.config.num_attention_heads, model.config.num_key_value_heads
        names = _names(file, model)
        self._tensors = {names[tensor.name]: tensor for tensor in file.tensors if tensor.name in names}
        self._own = dict(self._tensors)  # each once
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
        if head is not None and head.weight is embedding.weight:  # the file has it once
            by_weight = [name for name, weight in model.named_parameters(remove_duplicate=False)
                         if weight is head.weight]
            tensor = next((self._tensors[name] for name in by_weight if name in self._tensors), None)
            self._tensors |= {name: tensor for name in by_weight if tensor is not None}
        self._content = file.content()

    def bits(self, name: str) -> int | None:
        """Of how many bits the numbers of a layer of this name are; None where they are no grid."""
        tensor = self._tensors.get(f"{name}.weight")
        return _BITS.get(tensor.kind) if tensor is not None else None

    def rows(self, name: str) -> StoredRows:
        """The same as it is stored, in the mapped file."""
        tensor = self._tensors[f"{name}.weight"]
        (outputs, inputs), order = tensor.shape, None
        if turned := self._turned_heads(tensor):
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
                if id(weight) in linear and all(self.bits(part.removesuffix(".weight")) for part in joined_with(name))]

    def unpacked(self, dtype: torch.dtype, left: Collection[str] = ()) -> dict[str, torch.Tensor]:
        """All weights of the file by the names of the model's parameters; its shapes are not checked.

        Each is computed in float32 from the stored blocks, then rounded to ``dtype``. Those whose names are ``left``
        are not read (``fused_layers.unread``).
        """
        not_read = {name: unread(self._own[name].shape, dtype) for name in left if name in self._own}
        found = {name: torch.empty(tensor.shape, dtype=dtype) for name, tensor in self._own.items()
                 if name not in not_read}

        # A thread for each tensor, not several that wait for each other at each of ten thousand small operations.
        threads = torch.get_num_threads()
        try:
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(lambda name: self._unpack(self._own[name], found[name]),
                              sorted(found, key=lambda name: -self._own[name].count)))
        finally:
            torch.set_num_threads(threads)
        return found | not_read

    def _unpack(self, tensor: GgufTensor, weight: torch.Tensor) -> None:
        """Write a tensor's numbers, as transformers counts and orders them, into ``weight``, of the same shape."""
        stored = self._content[tensor.begin : tensor.begin + tensor.size].reshape(*tensor.shape[:-1], -1)
        numbers, turned = _dequantised(stored, tensor.kind).view(tensor.shape), self._turned_heads(tensor)
        if tensor.name.endswith("norm.weight") and self._family.norm_offset:
            numbers = numbers - self._family.norm_offset  # before they are rounded
        weight.copy_(halves_apart(numbers, turned) if turned else numbers)

    def _turned_heads(self, tensor: GgufTensor) -> int:
        """How many heads a tensor has whose rows are stored in another order; 0: it is stored as it is used."""
        heads, kv_heads = self._heads if self._family.rotated else (0, 0)
        return heads if ".attn_q." in tensor.name else kv_heads if ".attn_k." in tensor.name else 0


def halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the order of rows in which llama.cpp's converter stores Q and K: it has the two halves of each head's
    rotation interleaved. ``weight`` [heads * size, ...]."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


_BITS = {"Q2_K": 2, "Q3_K": 3, "Q6_K": 6, "Q8_0": 8, **dict.fromkeys(("Q5_0", "Q5_1", "Q5_K"), 5),
         **dict.fromkeys(("Q4_0", "Q4_1", "Q4_K", "IQ4_NL", "IQ4_XS"), 4)}
GRID_KINDS = frozenset(_BITS)


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
