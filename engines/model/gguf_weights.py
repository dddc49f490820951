"""The weights of a GGUF file as transformers names and lays them out, unpacked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

from engines.hub.gguf_config import family
from engines.hub.gguf_file import GgufFile, GgufTensor


def unpacked(file: GgufFile, model: PreTrainedModel, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """All weights by the names of ``model``'s parameters, which may lie on the meta device; its shapes are not checked.

    Each is computed in float32 from the stored blocks, then rounded to ``dtype``.
    """
    kind = family(file)
    content = np.memmap(file.path, dtype=np.uint8, mode="r")
    names = _names(file, model)
    heads, kv_heads = model.config.num_attention_heads, model.config.num_key_value_heads
    found = {}
    for tensor in file.tensors:
        name = names.get(tensor.name)
        if name is None:
            continue
        weight = _numbers(tensor, content)
        if kind.rotated and ".attn_q." in tensor.name:
            weight = halves_apart(weight, heads)
        elif kind.rotated and ".attn_k." in tensor.name:
            weight = halves_apart(weight, kv_heads)
        elif kind.norm_offset and tensor.name.endswith("norm.weight"):
            weight = weight - kind.norm_offset
        found[name] = weight.to(dtype)
    return found


def halves_apart(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Undo the order of rows in which llama.cpp's converter stores Q and K: it has the two halves of each head's
    rotation interleaved. ``weight`` [heads * size, ...]."""
    rows = weight.shape[0]
    return weight.reshape(heads, rows // heads // 2, 2, -1).transpose(1, 2).reshape(weight.shape)


def _numbers(tensor: GgufTensor, content: np.ndarray) -> torch.Tensor:
    """A tensor's numbers, float32, in its shape."""
    stored = content[tensor.begin : tensor.begin + tensor.size]
    if tensor.kind in _UNPACK:
        block, unpack = _UNPACK[tensor.kind]
        return unpack(torch.from_numpy(stored.copy()).view(-1, block)).view(tensor.shape)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    rows = stored.reshape(*tensor.shape[:-1], -1)
    return torch.from_numpy(dequantize(rows, GGMLQuantizationType[tensor.kind]).reshape(tensor.shape))


def _halves(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """Whole numbers of 4 bits: the low halves of a block's bytes from ``at`` on, then the high ones; [blocks, 32]."""
    return torch.cat([blocks[:, at:] & 15, blocks[:, at:] >> 4], 1)


def _half(blocks: torch.Tensor, at: int) -> torch.Tensor:
    """The float16 at a place of each block, as float32 [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


# The usual types in a third of the time that the gguf package takes (135M parameters: 0.7 s, not 2, on one core): bytes
# of a block (or of a number), and its numbers from [blocks, bytes] uint8.
_UNPACK: dict[str, tuple[int, Callable[[torch.Tensor], torch.Tensor]]] = {
    "F32": (4, lambda b: b.view(torch.float32)),
    "F16": (2, lambda b: b.view(torch.float16).float()),
    "BF16": (2, lambda b: b.view(torch.bfloat16).float()),
    "Q4_0": (18, lambda b: (_halves(b, 2).float() - 8) * _half(b, 0)),
    "Q4_1": (20, lambda b: _halves(b, 4).float().mul_(_half(b, 0)).add_(_half(b, 2))),
    "Q8_0": (34, lambda b: b[:, 2:].view(torch.int8).float().mul_(_half(b, 0))),
}


def _names(file: GgufFile, model: PreTrainedModel) -> dict[str, str]:
    """A parameter's name for each tensor's."""
    from gguf.constants import MODEL_ARCH_NAMES
    from gguf.tensor_mapping import get_tensor_name_map

    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == file.architecture)
    theirs = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    found = {}
    for name in model.state_dict():
        stem, _, suffix = name.rpartition(".")
        if (ggml := theirs.get_name(stem)) is not None:
            found[f"{ggml}.{suffix}"] = name
    return found
