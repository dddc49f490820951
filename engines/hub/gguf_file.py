"""The header of a GGUF file: its metadata and where its tensors lie, checked before anything is made of them.

Format: ggml's docs/gguf.md, versions 2 and 3, little endian. The ``gguf`` package reads these files too, but trusts
them: counts of 10^18, strings and tensors beyond the end of the file, and names of any form pass.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import struct
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.folders import open_file

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"GGUF"
_MOST = {"tensors": 100_000, "entries": 20_000, "items": 10_000_000}  # the largest models have a tenth of each
_LONGEST_NAME = 200
_LONGEST_STRING = 1 << 24
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_TOO_LONG = "a string in it is longer than the file or than any should be"
_TABLE, _HEAD = "token_embd.weight", "output.weight"
_COMPARED = 4  # rows of both
_SAME = 0.95  # cosine above which they are the same numbers, each rounded in its own way (Q2_K against Q8_0: 0.97)


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor as it is stored.

    Attributes:
        shape: in torch's order, the last dimension is contiguous.
        kind: its type in ggml's words, such as "Q4_1".
        begin, size: bytes from the start of the file, and how many.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    begin: int
    size: int

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A checked header, shared by all who read the file: nobody changes it. A model in several files is as one file, in
    which they lie one behind the other.

    Attributes:
        path: the file, the first of several.
        digest: 32 hexadecimal digits over the headers and the sizes of the files.
        parts: the files, and how many bytes each has.
    """

    path: Path
    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]
    digest: str
    parts: tuple[tuple[Path, int], ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size in self.parts)

    def content(self) -> np.ndarray | Joined:
        """The bytes of the file, uint8: ``content[tensor.begin : tensor.begin + tensor.size]``. Raises OSError."""
        import numpy as np

        mapped = [np.memmap(path, dtype=np.uint8, mode="r") for path, _ in self.parts]
        return mapped[0] if len(mapped) == 1 else Joined(mapped)

    @property
    def architecture(self) -> str:
        """In llama.cpp's words, such as "llama" or "qwen2"; empty where the file does not say."""
        value = self.metadata.get("general.architecture")
        return value if isinstance(value, str) else ""

    def stored(self) -> dict[str, int]:
        """How many numbers are stored in each type."""
        counts: dict[str, int] = {}
        for tensor in self.tensors:
            counts[tensor.kind] = counts.get(tensor.kind, 0) + tensor.count
        return counts

    @property
    def title(self) -> str:
        """What the file calls its model, untrusted; "" where it does not say."""
        value = self.metadata.get("general.name")
        return value if isinstance(value, str) else ""

    @property
    def weights_name(self) -> str | None:
        """What users call the way that its weights are stored, such as "Q4_K_M": as the file says, else the type that
        most numbers have. None of a file without tensors."""
        from gguf import LlamaFileType

        stated, counts = self.metadata.get("general.file_type"), self.stored()
        if type(stated) is int and stated in set(LlamaFileType) - {LlamaFileType.GUESSED}:
            return LlamaFileType(stated).name.partition("_")[2]  # behind MOSTLY or ALL
        return max(counts, key=counts.__getitem__, default=None)

    @property
    def repeated(self) -> int:
        """How many numbers are stored a second time: those of an output table that is the input's, which some writers
        store once more, often in another type. Raises OSError."""
        both = {tensor.name: tensor for tensor in self.tensors if tensor.name in (_TABLE, _HEAD)}
        if len(both) < 2 or both[_TABLE].shape != both[_HEAD].shape:
            return 0
        import numpy as np

        table, head = (_first_rows(self, both[name]) for name in (_TABLE, _HEAD))
        lengths = np.linalg.norm(table, axis=1) * np.linalg.norm(head, axis=1)
        same = (table * head).sum(axis=1) > _SAME * lengths
        return both[_HEAD].count if bool(same.all()) else 0


def _first_rows(file: GgufFile, tensor: GgufTensor) -> np.ndarray:
    """Some rows of a table as float64; not numbers (nan) of a type or size that the gguf package cannot read."""
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    rows, columns = tensor.shape[0], tensor.shape[-1]
    some = min(_COMPARED, rows)
    content = file.content()[tensor.begin : tensor.begin + tensor.size // rows * some].reshape(some, -1)
    try:
        with np.errstate(all="ignore"):
            return dequantize(content, GGMLQuantizationType[tensor.kind]).astype(np.float64)
    except (NotImplementedError, ValueError):
        return np.full((some, columns), np.nan)


class Joined:
    """Bytes of files as if they were one; a slice that is asked for lies within one of them."""

    def __init__(self, parts: list[np.ndarray]) -> None:
        self._parts = parts

    def __getitem__(self, where: slice) -> np.ndarray:
        begin, end = where.start, where.stop
        for part in self._parts:
            if begin < len(part):
                return part[begin:end]
            begin, end = begin - len(part), end - len(part)
        raise IndexError(where)


def read(path: Path) -> GgufFile:
    """Read and check a file's header; of a model in several files, the first of which is named, all headers: they are
    called as llama.cpp calls them.

    Raises:
        OSError: unreadable.
        NotRead: it is big-endian, or of another version.
        LaterPart: the file is one of several, and not the first.
        ValueError: no GGUF file, damaged, cut off, of a version or tensor type that is not known, or a part of the
            model is not beside it; the message names the file.
    """
    found = _header(path)
    count, names = _split(found, "count"), parts_by_name(path.name)
    if count <= 1:  # 0 where the files of a model were merged into one
        return found
    if len(names) != count:
        raise ValueError(f"{path.name} is one of the {count} files of a model, whose names must have the"
                         f" form NAME-00001-of-{count:05}.gguf")
    if number := _split(found, "no"):
        raise LaterPart(f"{path.name} is file {number + 1} of the {count} of a model",
                        f"name the first of them, {names[0]}")
    return _joined([_part(found, number, name) for number, name in enumerate(names)])


def _part(first: GgufFile, number: int, name: str) -> GgufFile:
    """A file of a model by its number, beside the first. Raises OSError, ValueError."""
    place = first.path.with_name(name)
    part = _header(place) if os.path.exists(place) else None
    if part is None or _split(part, "no") != number or any(
            part.metadata.get(f"split.{key}") != first.metadata.get(f"split.{key}") for key in _OF_ALL):
        raise ValueError(f"of the files of {first.path.name}, file {number + 1} is not beside it: {name}")
    return part


class NotRead(ValueError):
    """A file that isn't read here, though it may be sound. ``hint``: what is, for the user."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class LaterPart(NotRead):
    """A file of a model that isn't its first."""


_NUMBERED = re.compile(r"(.*-)(\d{5})(-of-)(\d{5})(\.gguf)", re.IGNORECASE)
_MOST_PARTS = 10_000


def parts_by_name(file: str) -> tuple[str, ...]:
    """The names of all files of the model that a file is of, as its name tells: ``a-00001-of-00002.gguf``; else its
    own."""
    found = _NUMBERED.fullmatch(file)
    count = int(found[4]) if found else 0
    if not 1 < count <= _MOST_PARTS or not 1 <= int(found[2]) <= count:
        return (file,)
    return tuple(f"{found[1]}{n:05}{found[3]}{found[4]}{found[5]}" for n in range(1, count + 1))


def _split(file: GgufFile, name: str) -> int:
    """A number of a file's metadata on how its model is split, 0 where it has none. Raises ValueError where it can be
    none."""
    value = file.metadata.get(f"split.{name}", 0)
    most = _MOST_PARTS if name == "count" else max(_split(file, "count"), 1) - 1
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{file.path.name} is damaged: split.{name} is no number of a file")
    return value


_OF_ALL = ("count", "tensors.count")  # what all files of a model say of it


def _joined(files: list[GgufFile]) -> GgufFile:
    first, tensors, behind = files[0], [], 0
    for file in files:
        tensors += [replace(tensor, begin=tensor.begin + behind) for tensor in file.tensors]
        behind += file.size
    stated = first.metadata.get("split.tensors.count")
    if len({tensor.name for tensor in tensors}) != len(tensors) or stated not in (None, len(tensors)):
        raise ValueError(f"{first.path.name} and the files of its model have {len(tensors)} tensors, where it says"
                         f" {stated}: they are not of one model")
    digest = hashlib.sha256("".join(file.digest for file in files).encode()).hexdigest()[:32]
    return GgufFile(first.path, first.metadata, tuple(tensors), digest, tuple(file.parts[0] for file in files))


def _header(path: Path) -> GgufFile:
    """One file's header. Raises OSError, ValueError."""
    about = path.stat()
    return _read(path, about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns)


@lru_cache(maxsize=8)  # loading a model asks for its file three times
def _read(path: Path, *identity: int) -> GgufFile:
    with open_file(path) as stream:
        if stream.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path.name} is not a GGUF file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                return _Header(content, path).read()
            except (struct.error, IndexError):
                raise ValueError(f"{path.name} is cut off") from None


def at(name: str) -> Path | None:
    """The file of that name if it is a GGUF file by its first bytes or its ending; None for all else."""
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # no such user
        return None
    first = _first_bytes(path)
    return path if first == MAGIC or (first is not None and path.suffix.lower() == ".gguf") else None


def begins(file: Path) -> bool:
    """Whether a file begins as GGUF files do; False for what is none, or cannot be read."""
    return _first_bytes(file) == MAGIC


def _first_bytes(file: Path) -> bytes | None:
    try:
        with open_file(file) as stream:
            return stream.read(len(MAGIC))
    except (OSError, ValueError):  # unreadable, no name at all
        return None


@cache
def kinds() -> dict[int, tuple[str, int, int]]:
    """Tensor types by number: name, numbers in a block, bytes of a block."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


class _Header:
    """Reads one file from its start; ``at`` is how far it has come, in bytes."""

    def __init__(self, content: mmap.mmap, path: Path) -> None:
        self.content, self.path, self.at = content, path, len(MAGIC)

    def read(self) -> GgufFile:
        version = self._scalar("I")
        if version in (2 << 24, 3 << 24):
            raise NotRead(f"{self.path.name} is a big-endian GGUF file", "choose a little-endian one")
        if version not in (2, 3):
            raise NotRead(f"{self.path.name} is GGUF version {version}; 2 and 3 can be read", "choose another file")
        tensors, entries = self._count("tensors"), self._count("entries")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self._name()
            if key in metadata:
                raise self._damaged(f"it has {key} twice")
            metadata[key] = self._value(self._scalar("I"))
        table = [self._entry() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 1 << 16:
            raise self._damaged("its alignment is invalid")
        data = -(-self.at // alignment) * alignment
        digest = hashlib.sha256(self.content[: self.at] + str(len(self.content)).encode()).hexdigest()[:32]
        whole = (self.path, len(self.content))
        return GgufFile(self.path, metadata, self._placed(table, data), digest, (whole,))

    def _placed(self, table: list[tuple[str, tuple[int, ...], int, int]], data: int) -> tuple[GgufTensor, ...]:
        found, names, last = [], set(), 0
        for name, shape, number, offset in sorted(table, key=lambda row: row[3]):
            if number not in kinds():
                raise ValueError(f"{self.path.name} stores {name} in a type that is not known here ({number})")
            kind, block, size = kinds()[number]
            if shape[-1] % block:
                raise self._damaged(f"{name} has rows that are not whole blocks of {kind}")
            length = prod(shape) // block * size
            if name in names or offset < last:
                raise self._damaged(f"{name} overlaps another tensor")
            if data + offset + length > len(self.content):
                raise ValueError(f"{self.path.name} is cut off: {name} lies beyond its end")
            names.add(name)
            last = offset + length
            found.append(GgufTensor(name=name, shape=shape, kind=kind, begin=data + offset, size=length))
        return tuple(found)

    def _entry(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and offset of a tensor."""
        name, dimensions = self._name(), self._scalar("I")
        if not 1 <= dimensions <= 4:
            raise self._damaged(f"{name} has {dimensions} dimensions")
        sizes = struct.unpack_from(f"<{dimensions}Q", self.content, self.at)
        self.at += 8 * dimensions
        if not all(sizes) or prod(sizes) > 8 * len(self.content):  # no type has less than a bit a number
            raise self._damaged(f"{name} is larger than the file")
        return name, sizes[::-1], self._scalar("I"), self._scalar("Q")

    def _value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind == _STRING:
            return self._string(_LONGEST_STRING)
        if kind != _ARRAY:
            raise self._damaged(f"it has a value of type {kind}")
        kind, count = self._scalar("I"), self._count("items")
        if kind == _STRING:
            return self._strings(count)
        if kind not in _SCALARS:
            raise self._damaged(f"it has an array of type {kind}")
        values = struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.content, self.at)
        self.at += struct.calcsize(f"<{count}{_SCALARS[kind]}")
        return list(values)

    def _strings(self, count: int) -> list[str]:
        """An array of strings: a vocabulary has a hundred thousand, so this is a plain loop."""
        content, at, end, found = self.content, self.at, len(self.content), []
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            begin = at + 8
            at = begin + length_at(content, at)[0]
            if at - begin > _LONGEST_STRING or at > end:
                raise self._damaged(_TOO_LONG)
            found.append(content[begin:at].decode("utf-8", "replace"))
        self.at = at
        return found

    def _scalar(self, letter: str) -> Any:
        value = struct.unpack_from("<" + letter, self.content, self.at)[0]
        self.at += struct.calcsize("<" + letter)
        return value

    def _count(self, what: str) -> int:
        count = self._scalar("Q")
        if count > _MOST[what]:
            raise self._damaged(f"it counts {count} {what}")
        return count

    def _string(self, longest: int) -> str:
        length = self._scalar("Q")
        if length > longest or self.at + length > len(self.content):
            raise self._damaged(_TOO_LONG)
        self.at += length
        return self.content[self.at - length : self.at].decode("utf-8", "replace")

    def _name(self) -> str:
        """A key or the name of a tensor: letters, digits, dots; never a path, and nothing a terminal would act on."""
        name = self._string(_LONGEST_NAME)
        if not _NAME.fullmatch(name):
            raise self._damaged("a name in it has invalid characters")
        return name

    def _damaged(self, reason: str) -> ValueError:
        return ValueError(f"{self.path.name} is damaged: {reason}")
