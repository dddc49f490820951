"""Answers that a model gave, kept on disk to draft from: per model, bounded, forgotten on request.

A file a model in the user's data folder. It holds token ids of answers and nothing else: no prompts, no text, no times.
Every answer is appended as a record with a checksum, in one write, so that several processes may append, and one that
is killed leaves at most a record that the others skip. What cannot be read is left out: a damaged file makes drafts
worse, and breaks nothing. ``SPEC_TUI_HISTORY=off`` keeps nothing.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engines import folders
from engines.errors import UsageProblem

MOST_TOKENS = 1 << 17
"""Tokens of past answers that are searched, the latest; twice as many are kept."""

_MAGIC = b"\xf5ans"
_HEAD = struct.Struct("<4sII")  # magic, tokens, checksum of their bytes
_LONGEST = 1 << 14  # tokens of an answer that are kept, the last ones
_LARGEST = 8 * MOST_TOKENS  # bytes of a file: a larger one is written anew
_ITEM = "I" if array("I").itemsize == 4 else "L"


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept: models, answers, tokens, and bytes on the disk."""

    models: int
    answers: int
    tokens: int
    size: int


class PastAnswers:
    """The file of one model.

    Args:
        fingerprint: of the model's weights.
        vocab_size: an answer with a token beyond it is damaged.
    """

    def __init__(self, fingerprint: str, vocab_size: int) -> None:
        self.fingerprint = fingerprint
        name = hashlib.blake2b(fingerprint.encode(), digest_size=16).hexdigest()
        self.file, self.vocab_size = folder() / f"{name}.answers", vocab_size
        self._read: tuple[int, int] | None = None  # how many bytes, and their checksum

    def news(self) -> tuple[bool, list[Sequence[int]]]:
        """What was added since the last call, by whichever process, the oldest first; and whether all that came before
        no longer counts: the file was removed, replaced or shortened."""
        try:
            with folders.open_file(self.file) as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LARGEST))
                data = file.read(_LARGEST)
        except OSError:
            fresh, self._read = self._read is not None, None
            return fresh, []
        size, checksum = self._read or (0, None)
        same = zlib.crc32(data[:size]) == checksum
        self._read = len(data), zlib.crc32(data)
        data = data[size if same else 0 :]
        return not same, _bounded([tokens for tokens in _records(data) if max(tokens) < self.vocab_size])

    def add(self, answer: Sequence[int]) -> None:
        """Keep an answer; one that the disk refuses is not kept."""
        if not len(answer):
            return
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
            handle = os.open(self.file, flags, 0o600)
            try:
                os.write(handle, _record(answer))
                size = os.fstat(handle).st_size
            finally:
                os.close(handle)
            if size > _LARGEST:
                self._shorten()
        except OSError:
            return

    def _shorten(self) -> None:
        """Write the latest answers anew. What another process adds meanwhile may be lost. Raises OSError."""
        with open(self.file, "rb") as file:
            file.seek(-_LARGEST, os.SEEK_END)
            kept = _bounded(list(_records(file.read(_LARGEST))))
        folders.write_whole(self.file, b"".join(map(_record, kept)))
        self.file.chmod(0o600)


def folder() -> Path:
    """Where the files are, whether there are any or not."""
    return folders.data() / "answers"


def kept() -> Kept:
    """What is kept of all models."""
    files = [file for file in _files() if file.suffix == ".answers"]
    answers = [tokens for file in files for tokens in _records(_content(file))]
    return Kept(len(files), len(answers), sum(map(len, answers)), sum(map(_size, _files())))


def forget() -> None:
    """Remove all that is kept, for every model; processes that run notice it at their next answer. Raises
    UsageProblem where the disk refuses."""
    try:
        for file in _files():
            file.unlink(missing_ok=True)
    except OSError as error:
        raise UsageProblem(f"past answers cannot be removed: {error.strerror}", f"they lie in {folder()}") from None


def _files() -> list[Path]:
    """What lies in the folder; what a process left that was killed while it wrote, too."""
    try:
        return [file for file in folder().iterdir() if os.path.islink(file) or not os.path.isdir(file)]
    except OSError:
        return []


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0


def _content(file: Path) -> bytes:
    try:
        return folders.read_file(file) if _size(file) <= 2 * _LARGEST else b""
    except OSError:
        return b""


def _bounded(answers: list[Sequence[int]]) -> list[Sequence[int]]:
    """The latest of these, of at most ``MOST_TOKENS`` together."""
    room = MOST_TOKENS
    for index in range(len(answers) - 1, -1, -1):
        room -= len(answers[index])
        if room < 0:
            return answers[index + 1 :]
    return answers


def _record(answer: Sequence[int]) -> bytes:
    payload = _swapped(array(_ITEM, answer[-_LONGEST:])).tobytes()
    return _HEAD.pack(_MAGIC, len(payload) // 4, zlib.crc32(payload)) + payload


def _records(data: bytes) -> Iterator[array]:
    """The answers in some bytes that are whole; what lies between is skipped."""
    at = data.find(_MAGIC)
    while 0 <= at <= len(data) - _HEAD.size:
        _, count, checksum = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + 4 * count
        payload = data[at + _HEAD.size : end] if 0 < count <= _LONGEST else b""
        if payload and len(payload) == 4 * count and zlib.crc32(payload) == checksum:
            yield _swapped(array(_ITEM, payload))
        else:
            end = at + 1
        at = data.find(_MAGIC, end)


def _swapped(tokens: array) -> array:
    """Numbers of this machine as little-endian ones, and back."""
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens
