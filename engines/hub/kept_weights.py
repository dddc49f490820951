"""Weights in the order of native code, kept in the cache folder: the next process maps them and computes nothing."""

from __future__ import annotations

import mmap
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from engines import folders
from engines.errors import ModelUnavailable
from engines.hub.gguf_file import GgufFile
from engines.machine import keep, kept, measured_file

if TYPE_CHECKING:
    import numpy as np

Fill = Callable[["np.ndarray"], None]
Place = Callable[[int, Fill], "np.ndarray"]  # memory of so many bytes, filled by a function or as it was kept

MOST = 16 << 30
"""Bytes of all that is kept; what was used least recently goes."""

WORTH = 200 << 20
"""Bytes of a model whose weights are kept; a smaller one's are reordered in a blink."""

_PAGE = 2 << 20  # bytes of a large page: what is written in whole ones is mapped in them
_LINE = 64  # bytes of a line of the processor's caches, at one of which each weight begins
_HOUR = 3600


def folder() -> Path:
    """Where weights are kept, whether it exists or not."""
    return folders.cache() / "weights"


def kept_bytes(model: Path) -> int:
    """Bytes that are kept of a file of weights."""
    return sum(map(_size, _kept_of(model)))


def files_of(model: Path) -> list[Path]:
    """The files that are kept of a file of weights."""
    return [file for note in _kept_of(model) for file in (note, _weights(note))]


def forget(model: Path) -> int:
    """Remove what is kept of a file of weights; returns the bytes that this frees."""
    freed = kept_bytes(model)
    for note in _kept_of(model):
        _remove(note)
    return freed


def _kept_of(model: Path) -> list[Path]:
    return [note for note, value in _notes() if value["model"] == str(model.resolve())]


def in_memory(size: int, fill: Fill) -> np.ndarray:
    """New memory, uint8 [size], that begins at a line of the caches, filled by a function."""
    import numpy as np

    # numpy asks for large pages, torch does not: fewer faults while it is filled, fewer misses when it is read.
    room = np.empty(size + _LINE, np.uint8)
    begin = -room.ctypes.data % _LINE
    memory = room[begin : begin + size]
    fill(memory)
    return memory


@contextmanager
def kept_weights(model: GgufFile, order: list[Any], made_by: str) -> Iterator[Place]:
    """Memory for the weights of a file, which are asked for in the same order each time.

    They are mapped as they were kept; else they are written while they are made, and kept where nothing failed, in
    place of those that other code made. A small model's are not, nor any where there is little room or no Linux.

    Args:
        model: the file.
        order: what their order depends on beside it and the code, as plain data.
        made_by: which code makes them.

    Raises:
        ModelUnavailable: they could not be written, although there was room.
    """
    parts = [(str(path.resolve()), size, path.stat().st_mtime_ns) for path, size in model.parts]
    note = measured_file("weights", [parts, *order, made_by])
    read = _WeightsReader.begun(note)
    if read is not None:
        with suppress(OSError):
            os.utime(note)  # used most recently
        yield read.place
        return
    written = _WeightsWriter.begun(note, model.size * 5 // 4) if model.size >= WORTH else None
    if written is None:
        yield in_memory
        return
    try:
        yield written.place
        written.keep({"model": str(model.path.resolve()), "order": [platform.node(), *order]})
    finally:
        written.close()


class _WeightsReader:
    """What was kept."""

    def __init__(self, handle: int, sizes: list[int]) -> None:
        self._sizes, self._at = iter(sizes), 0
        self._content = _mapped(handle, sum(sizes))

    @classmethod
    def begun(cls, note: Path) -> _WeightsReader | None:
        """None where nothing is kept as it was written, or another process has just removed it."""
        value = kept(note)
        if value is None:
            return None
        with suppress(OSError), _weights(note).open("rb") as opened:
            found = os.fstat(opened.fileno())
            if found.st_mtime_ns == value["written"] and found.st_size == sum(value["sizes"]):
                return cls(opened.fileno(), value["sizes"])
        return None

    def place(self, size: int, fill: Fill) -> np.ndarray:
        if next(self._sizes, None) != _padded(size):
            self._sizes = iter(())  # another order: nothing that follows is what it was
            return in_memory(size, fill)
        begin, self._at = self._at, self._at + _padded(size)
        return self._content[begin : begin + size]


class _WeightsWriter:
    """What will be kept: ``note`` says that it is; its file has room for ``room`` bytes."""

    def __init__(self, note: Path, room: int) -> None:
        self._note, self._sizes, self._rest = note, [], b""
        self._file = note.with_name(f".{note.stem}.{os.getpid()}")
        self._handle = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(self._handle, 0, room)  # or a full disk would end the process
            self._content = _mapped(self._handle, room)
        except BaseException:
            self.close()
            raise

    @classmethod
    def begun(cls, note: Path, room: int) -> _WeightsWriter | None:
        """None where nothing is kept."""
        if room > MOST or not hasattr(os, "posix_fallocate"):
            return None
        with suppress(OSError):
            note.parent.mkdir(parents=True, exist_ok=True)
            _tidy(MOST - room)
            system = os.statvfs(note.parent)
            if system.f_bavail * system.f_frsize > 4 * room:
                return cls(note, room)
        return None

    def place(self, size: int, fill: Fill) -> np.ndarray:
        """Memory that must not be read before ``keep``."""
        begin = sum(self._sizes)
        if begin + _padded(size) > len(self._content):
            return in_memory(size, fill)  # next time too
        self._sizes.append(_padded(size))
        self._write(in_memory(_padded(size), lambda memory: fill(memory[:size])))
        return self._content[begin : begin + size]

    def _write(self, made: np.ndarray) -> None:
        view = memoryview(made)
        whole = max(0, (len(self._rest) + len(view)) // _PAGE * _PAGE - len(self._rest))
        if whole:
            self._out([self._rest, view[:whole]])
            self._rest = b""
        self._rest += bytes(view[whole:])

    def _out(self, parts: list[Any]) -> None:
        rest = [part for part in parts if part]
        while rest:  # Linux writes 2 GiB at once at most
            try:
                done = os.writev(self._handle, rest)
            except OSError as error:
                raise _unwritable(error.strerror) from None
            while rest and done >= len(rest[0]):
                done -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][done:]

    def keep(self, said: dict[str, Any]) -> None:
        """Finish the file; from now on it is what is kept."""
        self._out([self._rest])
        with suppress(OSError):
            os.ftruncate(self._handle, max(sum(self._sizes), 1))
            os.fsync(self._handle)
            os.replace(self._file, _weights(self._note))
            keep(self._note, said | {"sizes": self._sizes, "written": os.fstat(self._handle).st_mtime_ns})
            for note, value in _notes():
                if note != self._note and said.items() <= value.items():
                    _remove(note)

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._handle)
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def _padded(size: int) -> int:
    return -(-size // _LINE) * _LINE


def _mapped(handle: int, size: int) -> np.ndarray:
    import numpy as np

    content = mmap.mmap(handle, size, prot=mmap.PROT_READ)
    with suppress(OSError):
        content.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(content, np.uint8)


def _weights(note: Path) -> Path:
    return note.with_suffix(".bin")


def _notes() -> list[tuple[Path, dict[str, Any]]]:
    """What is kept, the least recently used first, and what is said of each."""
    found = [(note, kept(note)) for note in folders.listed(folder(), "*.json")]
    return sorted(((note, value) for note, value in found if value is not None), key=lambda each: _used(each[0]))


def _tidy(room: int) -> None:
    """Remove what belongs to a model that is gone, what a process left that was killed, and so much that what is kept
    takes ``room`` bytes at most."""
    notes = _notes()
    files = {*folders.listed(folder(), "*.bin"), *folders.listed(folder(), ".*")}
    for file in files - {_weights(note) for note, _ in notes}:
        if time() - _used(file) > _HOUR:
            with suppress(OSError):  # a folder, or held by another program
                file.unlink()
    total = sum(_size(note) for note, _ in notes)
    for note, value in notes:
        if total > room or not os.path.exists(value["model"]):
            total -= _size(note)
            _remove(note)


def _used(file: Path) -> float:
    with suppress(OSError):
        return file.stat().st_mtime
    return 0.0


def _size(note: Path) -> int:
    with suppress(OSError):
        return _weights(note).stat().st_size
    return 0


def _remove(note: Path) -> None:
    for file in (note, _weights(note)):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _unwritable(why: str) -> ModelUnavailable:
    return ModelUnavailable(
        f"the model's weights cannot be written to {folder()}: {why}",
        "free some room, or name another folder in SPEC_TUI_CACHE_DIR")
