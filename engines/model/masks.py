"""Which tokens a row sees, as the masks that a model of transformers takes: its path, and the windows of its layers.

Everything goes by position, not by column: rows of sibling branches lie in different columns at one position. The kinds
of attention and their sizes are read from the configuration as ``transformers.masking_utils`` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from engines.libraries.hf import layer_kinds

Mask = torch.Tensor | Mapping[str, torch.Tensor] | None
"""Additive, [1, 1, rows, columns]; by kind of layer where there are several; None: what plain text sees."""
FULL = "full_attention"
# kind of layer -> where the configuration has its size: a row at position p sees the last ``sliding_window`` positions
# up to p, or those of its own chunk of ``attention_chunk_size``
SIZES = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}


def spans(config) -> dict[str, int | None] | None:
    """The kinds of attention layers by transformers' names, each with its size in positions (full attention: None).
    None where the configuration of the decoder has layers that these masks don't describe."""
    named = layer_kinds(config)
    found = {kind: size_of(config, name) for kind, name in SIZES.items()}
    kinds = set(named) if named else {next((kind for kind in SIZES if found[kind]), FULL)}
    if not named and kinds == {FULL} and _other_window(config):
        return None
    sizes = {kind: None if kind == FULL else found.get(kind) for kind in sorted(kinds)}
    return sizes if all(kind == FULL or type(size) is int for kind, size in sizes.items()) else None


def size_of(config, name: str) -> int | None:
    """A size by its name; None too where every layer has one of its own, which transformers answers with an error."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return None


def _other_window(config) -> bool:
    """Whether a family has a window under a name of its own (which layers have one is another number)."""
    sizes = {name: value for name, value in vars(config).items() if not name.endswith(("_layers", "_pattern"))}
    return any("window" in name and type(value) is int and value > 0 for name, value in sizes.items())


def additive(
    seen: np.ndarray, positions: np.ndarray, length: int, sizes: Mapping[str, int | None], dtype: torch.dtype
) -> Mask:
    """Masks for the last rows of a tree after ``length`` committed ones: 0 where a row sees a token, else the lowest
    number of ``dtype``.

    Args:
        seen: bool [rows, pending]: a row sees the pending row (its ancestors and itself).
        positions: int [pending], of all pending rows.
        sizes: as ``spans`` gives them.

    Returns:
        A mask [1, 1, rows, length + pending], or where the model has layers of several kinds, one for each.
    """
    rows, pending = seen.shape
    lowest = torch.finfo(dtype).min
    full = torch.zeros(1, 1, rows, length + pending, dtype=dtype)
    full[..., length:].masked_fill_(torch.from_numpy(~seen), lowest)
    masks = {}
    for kind, size in sizes.items():
        masks[kind] = full
        if size is not None and positions.max() >= size:
            columns = np.concatenate([np.arange(length), positions])
            hidden = _outside(kind, size, columns, columns[-rows:, None])
            masks[kind] = full.masked_fill(torch.from_numpy(hidden), lowest)
    return masks if len(masks) > 1 else next(iter(masks.values()))


def _outside(kind: str, size: int, columns: np.ndarray, own: np.ndarray) -> np.ndarray:
    """bool [rows, columns]: what a layer of this kind hides from rows at positions ``own`` [rows, 1], of the tokens at
    positions ``columns`` before them."""
    return columns // size != own // size if kind == "chunked_attention" else columns <= own - size


def moved(mask: Mask, device: torch.device) -> Mask:
    """A mask on a device."""
    if isinstance(mask, Mapping):
        return {kind: one.to(device) for kind, one in mask.items()}
    return None if mask is None else mask.to(device)
