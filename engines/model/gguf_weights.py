"""The weights of a GGUF file as transformers names and lays them out, unpacked."""

from __future__ import annotations

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
        weight = torch.from_numpy(_numbers(tensor, content))
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


def _numbers(tensor: GgufTensor, content: np.ndarray) -> np.ndarray:
    """A tensor's numbers, float32, in its shape."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[tensor.kind]
    stored = content[tensor.begin : tensor.begin + tensor.size]
    if kind == GGMLQuantizationType.F32:
        return stored.view(np.float32).reshape(tensor.shape).copy()
    if kind == GGMLQuantizationType.F16:
        return stored.view(np.float16).reshape(tensor.shape).astype(np.float32)
    return dequantize(stored.reshape(*tensor.shape[:-1], -1), kind).reshape(tensor.shape)


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
