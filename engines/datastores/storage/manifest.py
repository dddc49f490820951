"""The manifest of a datastore: what it holds, for which tokenizer and model, and each file's size and checksum.

A folder is a datastore if its ``manifest.json`` is valid; a build writes it last. It contains its own checksum, so that
a damaged manifest is never believed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from engines.errors import DatastoreProblem, way_out
from engines.folders import sample_datastores
from engines.hub.untrusted_json import read_object
from engines.report import encoding

FILE = "manifest.json"
FORMAT = 1
Kind = Literal["sparse", "dense", "both"]

_PATH = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,127})?", re.ASCII)
_DTYPES = frozenset([">u2", ">u4", "|u1", "<u2", "<u4", "<i4", "<i8", "<f2", "<f4", "<f8"])


@dataclass(frozen=True, slots=True)
class File:
    """One file of a datastore.

    Attributes:
        path: below the datastore's folder, with a slash if it is in a subfolder.
        size: bytes.
        sha256: of the content, hexadecimal.
        dtype, shape: of the array that the file holds, dtype as numpy writes it (row-major, no header); None if it
            holds no array.
    """

    path: str
    size: int
    sha256: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if not _PATH.fullmatch(self.path) or self.path == FILE:
            raise ValueError("a file name is not allowed")
        if self.size < 0 or not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError(f"{self.path}: its size or checksum is malformed")
        if (self.dtype is None) != (self.shape is None):
            raise ValueError(f"{self.path}: half an array")
        if self.dtype is not None and not self._fits():
            raise ValueError(f"{self.path}: shape and size don't agree")

    def _fits(self) -> bool:
        if self.dtype not in _DTYPES or len(self.shape) > 4 or any(n < 0 for n in self.shape):
            return False
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize == self.size


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """The model whose hidden states are the keys of a dense datastore.

    Attributes:
        name: as the user named it, for people; no path of a machine.
        fingerprint: equal for two models with the same hidden states.
        width: dimensions of a hidden state, which is the last layer's output after the final norm.
    """

    name: str
    fingerprint: str
    width: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a datastore holds.

    Attributes:
        name: as it was built; the name of the folder counts.
        tokenizer: ``tokenizer_fingerprint``.
        vocab_size: token ids are below this.
        documents, tokens, keys: counts; separators are not tokens, and without a dense part there are 0 keys.
        parameters: JSON that says how it was built: sources, limits, options of the index.
        created: when its build began, ISO 8601, UTC.
        model: of the dense part.
    """

    name: str
    kind: Kind
    tokenizer: str
    vocab_size: int
    documents: int
    tokens: int
    created: str
    files: tuple[File, ...]
    keys: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    model: ModelIdentity | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if min(self.vocab_size, self.documents, self.tokens, self.keys) < 0:
            raise ValueError("a count below zero")
        if len({f.path for f in self.files}) != len(self.files):
            raise ValueError("a file is listed twice")
        if (self.kind == "sparse") != (self.model is None):
            raise ValueError("a dense part without a model, or a model without one")

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)

    def file(self, path: str) -> File | None:
        """The entry of a file, None if there is none."""
        return next((f for f in self.files if f.path == path), None)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into the folder. Raises OSError, and TypeError or ValueError if the parameters are no JSON."""
    record = encoding.plain(manifest)
    text = json.dumps(record | {"checksum": _checksum(record)}, indent=1, sort_keys=True, allow_nan=False)
    (folder / FILE).write_text(text + "\n", "utf-8")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder. Raises DatastoreProblem: there is none, it is damaged, or a later version wrote its
    format."""
    name = folder.name
    try:
        record = read_object(folder / FILE)
    except FileNotFoundError:
        raise DatastoreProblem(f"{name} is not a datastore: it has no {FILE}",
                               "build it with: spec-tui datastore build") from None
    except OSError as error:
        raise unreadable(folder, FILE, error) from None
    except ValueError as error:
        raise damaged(folder, str(error)) from None
    version = record.pop("format", None)
    if isinstance(version, int) and version > FORMAT:
        raise DatastoreProblem(f"datastore {name} has format {version}, this program reads up to {FORMAT}",
                               "update spec-tui, or build it anew")
    noted = record.pop("checksum", None)
    try:
        if version != FORMAT or noted != _checksum(record | {"format": version}):
            raise ValueError("its checksum does not fit")
        return encoding.build(Manifest, record)
    except (ValueError, RecursionError) as error:
        raise damaged(folder, f"{FILE} is damaged ({error})") from None


def damaged(folder: Path, problem: str) -> DatastoreProblem:
    """The error for a datastore that is not as it was built."""
    ships = folder.parent == sample_datastores()
    return DatastoreProblem(f"datastore {folder.name}: {problem}",
                            "reinstall spec-tui, which it ships with" if ships else "remove it and build it again")


def unreadable(folder: Path, path: str, error: OSError) -> DatastoreProblem:
    """The error for a file of a datastore that could not be opened or read, though it may be as it was built."""
    found = damaged(folder, f"its file {path} cannot be read ({error.strerror or error})")
    return DatastoreProblem(found.message, way_out(error, found.hint))


def sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk, if the system can."""
    with suppress(OSError):  # folders on Windows
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _checksum(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def vocabulary_fingerprint(vocabulary: Mapping[str, int]) -> str:
    """Fingerprint of token -> id, added tokens included, in any order: 64 hexadecimal digits."""
    parts = []
    for number, token in sorted(zip(vocabulary.values(), vocabulary)):
        word = token.encode("utf-8", "surrogatepass")
        parts.append(b"%d %d %b" % (number, len(word), word))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Fingerprint of a tokenizer of transformers: two tokenizers share it if each id means the same to both."""
    return vocabulary_fingerprint(tokenizer.get_vocab())


def vocabulary_size(tokenizer: Any) -> int:
    """One more than the highest token id; some lower ids may belong to no token."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1
