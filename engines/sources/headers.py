"""Headers of safetensors files: what is stored, without reading it; on this machine or by range from the hub."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

from engines.errors import ModelUnavailable, first_line
from engines.sources.files import shards
from engines.sources.hub import Listing, told
from engines.sources.source import Source

_LARGEST = 100 << 20


def stored(file: Path) -> dict[str, int]:
    """Numbers stored in a weight file, by dtype in the file's words ("BF16").

    Raises:
        OSError: unreadable.
        ValueError: no safetensors file, or header and size do not agree.
    """
    with open(file, "rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if not 2 <= length <= _LARGEST:
            raise ValueError(f"{file.name} is not a safetensors file")
        header = json.loads(stream.read(length))
    tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
    end = max((tensor["data_offsets"][1] for tensor in tensors), default=0)
    if file.stat().st_size != 8 + length + end:
        raise ValueError(f"{file.name} is cut off")
    return _count(tensors)


def stored_in(source: Source) -> dict[str, int]:
    """The same for a model; empty for pickled weights, which are not opened.

    Raises:
        ModelUnavailable: the hub does not give them, or a file is damaged.
    """
    if source.choice.pickled:
        return {}
    if source.download is not None:
        return _on_hub(source.listing, source.choice.weights)
    counts: Counter[str] = Counter()
    for name in shards(source.folder, source.choice):
        try:
            counts.update(stored(source.folder / name))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelUnavailable(f"{source.name}: {first_line(error)}", "its download is incomplete") from None
    return dict(counts)


def _count(tensors: list[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for tensor in tensors:
        counts[str(tensor["dtype"])] += prod(tensor["shape"])
    return dict(counts)


def _on_hub(listing: Listing, names: tuple[str, ...]) -> dict[str, int]:
    """As the hub counted them, or else from the headers of its files: some kilobytes of each."""
    if listing.parameters:
        return listing.parameters
    from huggingface_hub import HfApi, constants

    api = HfApi(endpoint=constants.ENDPOINT)

    def ask(name: str) -> dict[str, int]:
        found = api.parse_safetensors_file_metadata(listing.name, name, revision=listing.commit)
        return {str(dtype): int(count) for dtype, count in found.parameter_count.items()}

    counts: Counter[str] = Counter()
    with told(listing.name, listing.revision), ThreadPoolExecutor(8) as pool:
        for found in pool.map(ask, names):
            counts.update(found)
    return dict(counts)
