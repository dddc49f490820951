"""The layouts of Medusa heads: FasterDecoding's (``0.0.linear.weight``, perhaps after ``medusa_head.``) and vLLM's
(``blocks.0.layers.0.weight``). How many heads there are, and of how many blocks, is counted: configurations say 2 where
there are 5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from engines.heads.head_config import MedusaConfig
from engines.heads.head_file import HeadFile, count, named, rows_of, size_of
from engines.heads.local_heads import MEDUSA_BLOCK, OWN
from engines.hub.untrusted_json import object_in

_ROWS = re.compile(r"(?:medusa_head\.)?(\d+)\.(\d+)\.weight|(?:medusa_heads\.)?lm_heads\.(\d+)\.weight")
_ONE = re.compile(r"(?:medusa_heads\.)?lm_head\.weight")  # behind the names of all-in-one files: the target's own


def medusa_heads(
    name: str, folder: Path, saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], target_width: int
) -> HeadFile:
    """The heads of these tensors. Raises ValueError: some are missing or of the wrong sizes."""
    blocks: dict[str, torch.Tensor] = {}  # by "head.block.weight" or "head.block.bias"
    for key, tensor in tensors.items():
        if match := MEDUSA_BLOCK.fullmatch(key):
            blocks[".".join(part for part in match.groups() if part)] = tensor
    heads, depth = (1 + max(int(key.split(".")[i]) for key in blocks) for i in (0, 1))
    first = next(iter(blocks.values()))
    width = first.shape[-1] if first.dim() else 0
    if width != target_width:
        raise ValueError(f"its hidden size is {width}, the target's is {target_width}")
    weight = _stacked(blocks, heads, depth, "weight", (width, width))
    bias = any(key.endswith("bias") for key in blocks)
    rows = _rows(saved, tensors, heads, width)
    ids, rows, vocabulary = _vocabulary(saved, tensors, rows)
    config = MedusaConfig(heads=heads, blocks=depth, width=width, bias=bias, vocabulary=vocabulary,
                        draft_vocabulary=vocabulary if ids is None else len(ids))
    return HeadFile(
        name=name, folder=folder, config=config, ids=ids, rows=rows,
        weights={"weight": weight, "bias": _stacked(blocks, heads, depth, "bias", (width,)) if bias else
                 weight.new_zeros(heads, depth, width)},
    )


def medusa_tensors(file: HeadFile) -> dict[str, torch.Tensor]:
    """Heads in vLLM's layout."""
    names = ["weight", *["bias"] * file.config.bias]
    tensors = {
        f"blocks.{head}.layers.{block}.{name}": file.weights[name][head, block]
        for name in names for head in range(file.config.heads) for block in range(file.config.blocks)
    }
    if file.rows is not None:
        each = file.rows if file.rows.dim() == 3 else [file.rows]
        tensors |= {f"lm_heads.{head}.weight": rows for head, rows in enumerate(each)}
    return tensors if file.ids is None else tensors | {"token_map": file.ids}


def medusa_config(file: HeadFile, target: str) -> dict[str, Any]:
    """The configuration beside them."""
    config = file.config
    return {
        "architectures": ["MedusaModel"], "model_type": config.family.lower(), "hidden_size": config.width,
        "num_heads": config.heads, "num_hidden_layers": config.blocks, "vocab_size": config.vocabulary,
        "truncated_vocab_size": config.draft_vocabulary, "medusa_fc_bias": config.bias,
        "original_lm_head": file.rows is None or file.rows.dim() == 2, "base_model_name_or_path": target,
    }


def _stacked(
    blocks: Mapping[str, torch.Tensor], heads: int, depth: int, name: str, size: tuple[int, ...]
) -> torch.Tensor:
    """One kind of tensor of all blocks, [heads, depth, *size]. Raises ValueError."""
    found = []
    for key in (f"{head}.{block}.{name}" for head in range(heads) for block in range(depth)):
        tensor = named(blocks, key)
        if tensor.shape != size:
            raise ValueError(f"{key} is {size_of(tensor)} and not {' x '.join(map(str, size))}")
        found.append(tensor)
    return torch.stack(found).unflatten(0, (heads, depth))


def _rows(saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], heads: int, width: int) -> torch.Tensor | None:
    """Their language modelling heads, [heads, n, width], or one for all [n, width]; None: the target's. Raises
    ValueError."""
    each = {}
    for key, tensor in tensors.items():
        if match := _ROWS.fullmatch(key):
            each[match[1] or match[3]] = tensor
    shared = saved.get("original_lm_head") is True
    if object_in(saved, OWN).get("lm_head") == "target":
        return None
    if shared:
        one = next((tensor for key, tensor in tensors.items() if _ONE.fullmatch(key)), each.get("0"))
        each = {"0": named({"lm_head.weight": one} if one is not None else {}, "lm_head.weight")}
    found = [named(each, str(head)) if str(head) in each else named({}, f"the language modelling head of head {head}")
             for head in range(1 if shared else heads)]
    size = (*found[0].shape[:1], width)
    for rows in found:
        if rows.shape != size:
            raise ValueError(f"a language modelling head is {size_of(rows)} and not {' x '.join(map(str, size))}")
    return found[0] if shared else torch.stack(found)


def _vocabulary(
    saved: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], rows: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, int]:
    """The target's token of each that they draft (None: all), the rows of these tokens, and the target's vocabulary.
    Raises ValueError."""
    held = rows.shape[-2] if rows is not None else None
    whole = count(saved, "vocab_size", default=held)
    ids = tensors.get("token_map")
    if ids is None or (count(saved, "truncated_vocab_size", default=whole) >= whole and held == whole):
        if held not in (None, whole):
            raise ValueError(f"they draft {held} tokens of {whole}, and have no token_map that says which")
        return None, rows, whole
    if ids.dim() != 1 or ids.is_floating_point() or not rows_of(tensors, "token_map"):
        raise ValueError(f"token_map is {size_of(ids)}")
    ids = ids.long()
    if not (int(ids.min()) >= 0 and int(ids.max()) < whole and len(ids.unique()) == len(ids)):
        raise ValueError("token_map names tokens twice, or beyond the vocabulary")
    if rows is not None and held == whole > len(ids):
        rows = rows[..., ids, :]
    elif held not in (None, len(ids)):
        raise ValueError(f"token_map names {len(ids)} tokens, a language modelling head has {held}")
    return ids, rows, whole
