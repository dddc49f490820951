"""Headers of safetensors files: what is stored, without reading it.

huggingface_hub (2.4) has functions for this, which trust the file: they accept any shape and any place of a tensor, and
do not compare the header with the size of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from engines.errors import ModelUnavailable, first_line
from engines.hub.model_source import ModelSource, shards
from engines.hub.untrusted_json import is_count, parse_object, read_object

_LARGEST = 100 << 20
_HEAD = "lm_head.weight"


def stored(file: Path) -> dict[str, int]:
    """Numbers stored in a weight file, by dtype in the file's words ("BF16").

    Raises:
        OSError: unreadable.
        ValueError: no safetensors file, or header and size do not agree.
    """
    with open(file, "rb") as stream:
        return _count(stream.read, file.name, file.stat().st_size)


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
    shapes = {name: shape for file in files for name, shape in _shapes(file).items()}
    head = shapes.pop(_HEAD, None)
    return prod(head) if head is not None and head in shapes.values() else 0


def tensor_names(file: Path) -> list[str]:
    """Names of the tensors in a weight file. Raises OSError, ValueError: as ``stored``."""
    with open(file, "rb") as stream:
        return list(_header(stream.read, file.name, file.stat().st_size)[0])


def _shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors in a weight file, by name. Raises OSError, ValueError: as ``stored``."""
    with open(file, "rb") as stream:
        header, _ = _header(stream.read, file.name, file.stat().st_size)
    return {name: _tensor(tensor, file.name)[1] for name, tensor in header.items()}


def _count(read: Callable[[int], bytes], name: str, size: int) -> dict[str, int]:
    """Numbers by dtype in a file of so many bytes, of which ``read`` gives the next. Raises ValueError."""
    tensors, begin = _header(read, name, size)
    counts: Counter[str] = Counter()
    last = 0
    for tensor in tensors.values():
        dtype, shape, end = _tensor(tensor, name)
        counts[dtype] += prod(shape)
        last = max(last, end)
    if size != begin + last:
        raise ValueError(f"{name} is cut off")
    return dict(counts)


def _header(read: Callable[[int], bytes], name: str, size: int) -> tuple[dict[str, Any], int]:
    """What the header says of each tensor, and where its bytes end. Raises ValueError."""
    length = int.from_bytes(read(8), "little")
    if not 2 <= length <= _LARGEST:
        raise ValueError(f"{name} is not a safetensors file")
    if 8 + length > size:
        raise ValueError(f"{name} is cut off")
    tensors = parse_object(read(length), name)
    tensors.pop("__metadata__", None)
    return tensors, 8 + length


def _tensor(tensor: Any, name: str) -> tuple[str, tuple[int, ...], int]:
    """Dtype, shape, where it ends. Raises ValueError."""
    match tensor:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]}:
            sizes = (*shape, begin, end)
            # no dtype has less than a bit; so no product is beyond what the file can hold
            if all(map(is_count, sizes)) and begin <= end and len(shape) <= 64 and prod(shape) <= 8 * (end - begin):
                return dtype, tuple(shape), end
    raise ValueError(f"{name} is damaged: it does not say where its tensors are")
