"""Parts of a large file, as a user has them: the file itself, raw pieces of it, or Python wheels that contain either.

Names say the order, as a rule: ``part2`` comes before ``part10``. The first part of a GGUF file begins with its magic
number, and of pieces that were cut to one size the last is the only shorter one. A few orders are tried; what is joined
is the file when its checksum says so.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engines.errors import ModelUnavailable, first_line
from engines.hub.gguf_file import MAGIC

_DESCRIBES = re.compile(r"\.dist-info/|\.(py|pyi|txt|md|json|toml|cfg)$")
_MOST = 4096  # parts that are looked at


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file, or the whole of it.

    Attributes:
        file: where it lies; ``member``: its name inside of that wheel, "" for the file itself. Both untrusted.
        size: in bytes, as the file system or the wheel says.
        first: whether it begins as a GGUF file does.
    """

    file: Path
    member: str
    size: int
    first: bool

    def blocks(self, length: int) -> Iterator[bytes]:
        """Its content in blocks of at most ``length`` bytes, never more than ``size``. Raises ModelUnavailable."""
        with _readable(self.file), _opened(self.file, self.member) as stream:
            left = self.size
            while left > 0 and (block := stream.read(min(length, left))):
                left -= len(block)
                yield block


def parts_of(files: Iterable[Path]) -> list[Part]:
    """What the files hold that may be a part of a model: of a wheel its members, without code and descriptions.
    Raises ModelUnavailable: a file cannot be read."""
    found = []
    for file in files:
        with _readable(file):
            if not file.is_file():
                raise ModelUnavailable(f"there is no file {file}", "check the path")
            found += _in_wheel(file) if zipfile.is_zipfile(file) and not _begins(file, "") else [_part(file, "")]
    if len(found) > _MOST:
        raise ModelUnavailable(f"these are {len(found):,} parts", f"give at most {_MOST:,}")
    return found


def _in_wheel(file: Path) -> list[Part]:
    with zipfile.ZipFile(file) as wheel:
        members = [entry.filename for entry in wheel.infolist() if entry.file_size and not entry.is_dir()]
    return [_part(file, name) for name in members if not _DESCRIBES.search(name)]


def _part(file: Path, member: str) -> Part:
    if not member:
        return Part(file, member, file.stat().st_size, _begins(file, member))
    with zipfile.ZipFile(file) as wheel:
        return Part(file, member, wheel.getinfo(member).file_size, _begins(file, member))


def _begins(file: Path, member: str) -> bool:
    with _opened(file, member) as stream:
        return stream.read(len(MAGIC)) == MAGIC


class _opened:
    """A file, or a member of a wheel, open for reading."""

    def __init__(self, file: Path, member: str) -> None:
        self._wheel = zipfile.ZipFile(file) if member else None
        self._stream: IO[bytes] = self._wheel.open(member) if self._wheel is not None else file.open("rb")

    def __enter__(self) -> IO[bytes]:
        return self._stream

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        if self._wheel is not None:
            self._wheel.close()


class _readable:
    """While a file is read. Raises ModelUnavailable where that fails."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (OSError, zipfile.BadZipFile, EOFError, KeyError, RuntimeError, NotImplementedError)):
            why = getattr(error, "strerror", None) or first_line(error)
            raise ModelUnavailable(f"{self._file.name} cannot be read: {why}", "check the file") from None


def orders(parts: Sequence[Part], size: int) -> Iterator[tuple[Part, ...]]:
    """The parts in every order that makes sense for a GGUF file of so many bytes, the likeliest first: the whole file,
    then parts that are named alike by the numbers in their names, as they were given, or the shortest last."""
    seen = set()
    for part in parts:
        if part.first and part.size == size:
            yield (part,)
    for order in _candidates(parts):
        if len(order) > 1 and order[0].first and sum(part.size for part in order) == size and order not in seen:
            seen.add(order)
            yield order


def _candidates(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    for group in _groups(parts):
        sequences = [sorted(group, key=lambda part: _natural(name(part))) for name in _NAMES]
        sequences += [list(group), list(reversed(group)), sorted(group, key=lambda part: -part.size)]
        for sequence in sequences:
            yield from _begun(sequence)
            yield from _runs(sequence)


_NAMES: tuple[Callable[[Part], str], ...] = (
    lambda part: part.file.name, lambda part: part.member or part.file.name, lambda part: str(part.file),
)
_ALIKE: tuple[Callable[[Part], str], ...] = (  # what parts of one file have in common
    *(lambda part, name=name: re.sub(r"\d+", "#", name(part)) for name in _NAMES),
    lambda part: re.sub(r"[._-][^._-]*$", "", part.file.name),
    lambda part: str(part.file.parent),
    lambda part: "",
)


def _groups(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """The parts that may belong together, in the order that they were given in: those whose names differ in numbers
    only, or in the last word; those of a folder; all."""
    for alike in _ALIKE:
        groups: dict[str, list[Part]] = {}
        for part in parts:
            groups.setdefault(alike(part), []).append(part)
        yield from groups.values()


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sorts numbers in names by their value."""
    return [(0, int(word)) if word.isdecimal() else (1, word) for word in re.split(r"(\d+)", name) if word]


def _begun(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The parts, the one that begins a GGUF file first; none where several or none does."""
    first = [part for part in parts if part.first]
    if len(first) == 1:
        yield (first[0], *(part for part in parts if part is not first[0]))


def _runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Each part that begins a GGUF file, with those that follow it."""
    begins = [number for number, part in enumerate(parts) if part.first]
    for begin, end in zip(begins, [*begins[1:], len(parts)]):
        yield tuple(parts[begin:end])
