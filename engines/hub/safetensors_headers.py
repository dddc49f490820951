"""Headers of safetensors files: what is stored, without reading it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from engines.errors import ModelUnavailable, first_line
from engines.hub.model_source import ModelSource, shards
from engines.hub.untrusted_json import read_object

_HEAD = "lm_head.weight"


def stored(file: Path) -> dict[str, int]:
    """Numbers stored in a weight file, by dtype in the file's words ("BF16").

    Raises:
        OSError: unreadable.
        ValueError: no safetensors file, or header and size do not agree.
    """
    counts: Counter[str] = Counter()
    for dtype, shape in _tensors(file).values():
        counts[dtype] += prod(shape)
    return dict(counts)


def stored_in(source: ModelSource) -> dict[str, int]:
    """The same for a model; empty for pickled weights, which are not opened, and for one of the hub whose numbers the
    hub did not count. Raises ModelUnavailable: a file is damaged."""
    if source.choice.pickled:
        return {}
    if source.gguf is not None:
        return source.gguf.stored()
    if source.download is not None:
        return dict(source.listing.parameters)
    counts: Counter[str] = Counter()
    for name in shards(source.folder, source.choice):
        try:
            counts.update(stored(source.folder / name))
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"{source.name}: {first_line(error)}", "its download is incomplete") from None
    return dict(counts)


def parameters_of(source: ModelSource, stored: Mapping[str, int]) -> int:
    """Numbers of a model as people count them: a table that is stored for the input and once more for the output counts
    once, as far as that is known here. 0 where nothing is: of pickled weights. ``stored`` is what ``stored_in``
    gives."""
    found = sum(stored.values())
    if source.gguf is not None:
        return found - source.gguf.repeated
    if source.choice.pickled or source.download is not None:
        return found
    try:
        files = [source.folder / name for name in shards(source.folder, source.choice)]
        return found - repeated(files, read_object(source.folder / "config.json"))
    except (OSError, ValueError):  # whoever loads it says what is wrong
        return found


def repeated(files: Iterable[Path], config: Mapping[str, Any]) -> int:
    """How many numbers of a model's files are stored a second time: the output table of one whose configuration says
    that it is the input's. Raises OSError, ValueError: as ``stored``."""
    if config.get("tie_word_embeddings") is not True:
        return 0
    shapes = {name: shape for file in files for name, (_, shape) in _tensors(file).items()}
    head = shapes.pop(_HEAD, None)
    return prod(head) if head is not None and head in shapes.values() else 0


def tensor_names(file: Path) -> list[str]:
    """Names of the tensors in a weight file. Raises OSError, ValueError: as ``stored``."""
    return list(_tensors(file))


def _tensors(file: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Dtype and shape of the tensors in a weight file, by name. Raises OSError, ValueError: as ``stored``."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "numpy") as opened:
            found = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is no mapping
            return {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in found.items()}
    except SafetensorError as error:
        raise ValueError(f"{file.name} is damaged, or cut off: {first_line(error)}") from None
