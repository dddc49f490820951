"""A model folder as a GGUF file, for llama.cpp and for this program: written tensor by tensor, without torch."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engines.errors import ModelUnavailable, RunFailed, UsageProblem, first_line
from engines.folders import arriving
from engines.hub.download import Progress
from engines.hub.download_progress import in_bytes
from engines.hub.gguf_config import Unsupported
from engines.hub.gguf_file import kinds
from engines.hub.gguf_from_config import GgufModel, gguf_model
from engines.hub.gguf_from_tokenizer import tokenizer_keys
from engines.hub.model_checks import read_config
from engines.hub.model_source import ModelSource, shards
from engines.hub.safetensors_headers import StoredTensor, tensors
from engines.progress import Loading

if TYPE_CHECKING:
    import gguf

_IN_PARTS = "F16"  # of a matrix whose rows are no whole blocks of the type that is asked for


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the file: ``kind`` in ggml's words, ``numbers`` reads it as float32 in its shape."""

    name: str
    shape: tuple[int, ...]
    kind: str
    numbers: Callable[[], np.ndarray]

    @property
    def count(self) -> int:
        return int(np.prod(self.shape))

    @property
    def size(self) -> int:
        """In bytes."""
        block, size = _block(self.kind)
        return self.count // block * size


def export(
    source: ModelSource, file: Path, kind_of: Callable[[str], str], progress: Progress, *, name: str,
    tokenizer: Mapping[str, Any] | None = None, licence: str = "", replace: bool = False,
) -> tuple[str, ...]:
    """Write a model that lies in a folder as a GGUF file; returns remarks for the user.

    Args:
        source: with its weights here; in safetensors.
        kind_of: ggml's type for a matrix, of those that the gguf package writes, by the matrix's name in the file
            ("blk.0.ffn_up.weight"). Vectors are float32, as llama.cpp has them.
        progress: told of each tensor; what it raises leaves this function, and nothing of the file stays.
        name: that the file states of the model.
        tokenizer: metadata of the tokenizer; None: the folder's own.
        licence: SPDX, where it is known.
        replace: a file that exists.

    Raises:
        ModelUnavailable: a model that llama.cpp, or this program, would read otherwise; the message says why. Or it is
            damaged.
        UsageProblem: the file exists.
        RunFailed: it cannot be written, or the disk has no room.
    """
    if source.gguf is not None:
        hint = "llama.cpp reads it as it is"
        raise ModelUnavailable(f"{source.name} is a GGUF file already: {source.gguf.path}", hint)
    try:
        config = _config(source)
        model = gguf_model(config)
        planned = list(_planned(source, model, kind_of))
        rows = model.keys[f"{model.architecture}.vocab_size"]
        keys, remarks = (tokenizer, ()) if tokenizer is not None else tokenizer_keys(source.folder, rows, config)
    except Unsupported as error:
        raise ModelUnavailable(f"{source.name} cannot be written as GGUF: {error}", "choose another model") from None
    except (OSError, ValueError) as error:
        raise ModelUnavailable(f"{source.name} cannot be read: {first_line(error)}", "download it again") from None
    _check_room(file, sum(tensor.size for tensor in planned))
    header = {"general.name": name, "general.license": licence, **model.keys, **keys}
    try:
        with arriving(file, replace) as place:
            _write(place, model.architecture, header, planned, lambda done: progress(Loading(f"writing {file}", done)))
    except FileExistsError:
        raise UsageProblem(f"{file} exists", "name another file with --output, or say --force") from None
    except OSError as error:
        hint = "name another file with --output"
        raise RunFailed(f"{file} cannot be written: {error.strerror or error}", hint) from None
    except _TooLarge as error:
        raise ModelUnavailable(f"{source.name} cannot be written so: {error}", "choose another type") from None
    return (*remarks, *_cut_blocks(planned, kind_of))


def _config(source: ModelSource) -> dict[str, Any]:
    """The content of a folder's config.json. Raises OSError, ValueError."""
    if source.choice.pickled:
        raise Unsupported("its weights are pickled; only safetensors are read for this")
    return read_config(source.folder)


def _planned(source: ModelSource, model: GgufModel, kind_of: Callable[[str], str]) -> Iterator[_Tensor]:
    """The tensors of the file, in its order. Raises OSError, ValueError."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    stored: dict[str, StoredTensor] = {}
    for shard in shards(source.folder, source.choice):
        stored |= tensors(source.folder / shard)
    _check(stored, model)
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == model.architecture)
    names = get_tensor_name_map(architecture, model.layers)
    if model.rope_factors is not None:
        yield _Tensor("rope_freqs.weight", model.rope_factors.shape, "F32", lambda: model.rope_factors)
    for name, shape in model.shapes.items():
        stem, _, suffix = name.rpartition(".")
        theirs = f"{names.get_name(stem)}.{suffix}"
        kind = "F32" if len(shape) == 1 else _whole_blocks(kind_of(theirs), shape)
        yield _Tensor(theirs, shape, kind, _reader(stored[name], model.heads.get(name, 0)))


def _check(stored: Mapping[str, StoredTensor], model: GgufModel) -> None:
    """Raises Unsupported where the weights are not those that the configuration leads to."""
    for name, shape in model.shapes.items():
        if name not in stored:
            raise Unsupported(f"it has no {name}")
        if stored[name].shape != shape:
            raise Unsupported(f"its {name} is of shape {stored[name].shape}, not {shape}")
        if stored[name].dtype not in _NUMBERS:
            raise Unsupported(f"its {name} is stored as {stored[name].dtype[:20]}")
    known = {"lm_head.weight", *model.shapes}  # one that is tied may be stored again
    if other := next((name for name in stored if name not in known and not name.endswith("rotary_emb.inv_freq")), None):
        raise Unsupported(f"it has {other[:80]!r}, which no such model has")


def _block(kind: str) -> tuple[int, int]:
    """Numbers in a block of a type, and its bytes."""
    return next((numbers, size) for name, numbers, size in kinds().values() if name == kind)


def _whole_blocks(kind: str, shape: tuple[int, ...]) -> str:
    return kind if shape[-1] % _block(kind)[0] == 0 else _IN_PARTS


def _cut_blocks(planned: list[_Tensor], kind_of: Callable[[str], str]) -> tuple[str, ...]:
    """A remark on matrices that are stored in another type than was asked for."""
    other = [tensor for tensor in planned if len(tensor.shape) > 1 and tensor.kind != kind_of(tensor.name)]
    if not other:
        return ()
    return (f"{len(other)} matrices are stored as {other[0].kind}: their rows are no whole blocks of "
            f"{kind_of(other[0].name)}",)  # fmt: skip


def _bfloat16(stored: np.ndarray) -> np.ndarray:
    wide = stored.view("<u2").astype(np.uint32)
    wide <<= 16
    return wide.view(np.float32)


_NUMBERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "F32": lambda stored: stored.view("<f4"),
    "F16": lambda stored: stored.view("<f2").astype(np.float32),
    "BF16": _bfloat16,
}


def _reader(stored: StoredTensor, heads: int) -> Callable[[], np.ndarray]:
    """Reads a tensor; that of so many ``heads`` with the halves of each head's rotation interleaved, as llama.cpp's
    converter does (convert_hf_to_gguf.py, ``permute``)."""

    def numbers() -> np.ndarray:
        content = np.memmap(stored.file, np.uint8, "r", stored.begin, (stored.size,))
        found = _NUMBERS[stored.dtype](content).reshape(stored.shape)
        if heads:
            found = found.reshape(heads, 2, stored.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(stored.shape)
        return found

    return numbers


def _check_room(file: Path, size: int) -> None:
    """Raises RunFailed where the disk has no room, or there is no folder."""
    try:
        free = shutil.disk_usage(file.resolve().parent).free
    except OSError as error:
        raise RunFailed(f"{file} cannot be written: {error.strerror}", "name another file with --output") from None
    if free < size:
        raise RunFailed(f"{file} takes {in_bytes(size)}, its disk has {in_bytes(free)} free",
                        "make room, or name another file with --output")  # fmt: skip


class _TooLarge(ValueError):
    """A number that the chosen type does not have."""


def _write(
    place: Path, architecture: str, header: Mapping[str, Any], planned: list[_Tensor], done: Callable[[float], None]
) -> None:
    import gguf

    writer = gguf.GGUFWriter(place, architecture)
    for key, value in header.items():
        _add(writer, key, value)
    writer.add_file_type(_file_type(planned))
    for tensor in planned:
        kind = gguf.GGMLQuantizationType[tensor.kind]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype(np.float32), tensor.size, raw_dtype=kind)
    whole, written = sum(tensor.count for tensor in planned), 0
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor in planned:
            done(written / whole)
            writer.write_tensor_data(_stored(tensor))
            written += tensor.count
    finally:
        writer.close()


def _stored(tensor: _Tensor) -> np.ndarray:
    """A tensor in its type. Raises _TooLarge."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    numbers = np.ascontiguousarray(tensor.numbers())
    if tensor.kind == "F16" and not np.abs(numbers).max() <= np.finfo(np.float16).max:
        raise _TooLarge(f"{tensor.name} has numbers that {tensor.kind} does not")
    return quantize(numbers, GGMLQuantizationType[tensor.kind])


def _file_type(planned: list[_Tensor]) -> int:
    """llama.cpp's number for the type that most numbers have."""
    from gguf import LlamaFileType

    counts: dict[str, int] = {}
    for tensor in planned:
        counts[tensor.kind] = counts.get(tensor.kind, 0) + tensor.count
    most = max(counts, key=counts.__getitem__)
    return LlamaFileType["ALL_F32" if most == "F32" else f"MOSTLY_{most}"]


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add a value as ``gguf_file`` reads it."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
