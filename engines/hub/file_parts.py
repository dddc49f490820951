"""Parts of a large file, as a user has them: the file itself, raw pieces of it, or Python wheels that contain either.

Names say the order: ``part2`` comes before ``part10``; else the order in which they are given does. The first part of a
GGUF file begins with its magic number. What is joined is the file when its checksum says so.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
            if os.path.isdir(file):
                raise ModelUnavailable(f"{file} is a folder", "name the file in it, or its parts")
            if not os.path.isfile(file):
                raise ModelUnavailable(f"there is no file {file}", "check the path")
            found += _in_wheel(file) if zipfile.is_zipfile(file) and not _begins(file, "") else [_part(file, "")]
    if len(found) > _MOST:
        raise ModelUnavailable(f"these are {len(found):,} parts", f"give at most {_MOST:,}")
    return found


def _in_wheel(file: Path) -> list[Part]:
    with zipfile.ZipFile(file) as wheel:
        members = [entry.filename for entry in wheel.infolist() if entry.file_size and not entry.filename.endswith("/")]
    return [_part(file, name) for name in members if not _DESCRIBES.search(name)]


def _part(file: Path, member: str) -> Part:
    if not member:
        return Part(file, member, file.stat().st_size, _begins(file, member))
    with zipfile.ZipFile(file) as wheel:
        return Part(file, member, wheel.getinfo(member).file_size, _begins(file, member))


def _begins(file: Path, member: str) -> bool:
    with _opened(file, member) as stream:
        return stream.read(len(MAGIC)) == MAGIC


@contextmanager
def _opened(file: Path, member: str) -> Iterator[IO[bytes]]:
    """A file, or a member of a wheel, open for reading."""
    if not member:
        with file.open("rb") as stream:
            yield stream
        return
    with zipfile.ZipFile(file) as wheel, wheel.open(member) as stream:
        yield stream


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    """While a file is read. Raises ModelUnavailable where that fails."""
    try:
        yield
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise ModelUnavailable(f"{file.name} cannot be read: {why}", "check the file") from None


def orders(parts: Sequence[Part], size: int) -> Iterator[tuple[Part, ...]]:
    """The parts in every order that makes sense for a GGUF file of so many bytes: the whole file; those whose names
    differ in numbers only, by these numbers; all as they were given."""
    yield from ((part,) for part in parts if part.first and part.size == size)
    groups: dict[str, list[Part]] = {}
    for part in parts:
        groups.setdefault(re.sub(r"\d+", "#", f"{part.file.name}/{part.member}"), []).append(part)
    for sequence in (*(sorted(group, key=_numbers) for group in groups.values()), parts):
        for order in _runs(sequence):
            if len(order) > 1 and sum(part.size for part in order) == size:
                yield order


def _numbers(part: Part) -> list[int]:
    """The numbers in its names: all else is the same in a group."""
    return [int(word) for word in re.findall(r"\d+", f"{part.file.name}/{part.member}")]


def _runs(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """Each part that begins a GGUF file, with those that follow it."""
    begins = [number for number, part in enumerate(parts) if part.first]
    for begin, end in zip(begins, [*begins[1:], len(parts)]):
        yield tuple(parts[begin:end])
