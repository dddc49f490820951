"""An open datastore: its manifest, its files mapped into memory (read only), and its table of documents."""

from __future__ import annotations

import math
import mmap
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from engines.datastores.storage.manifest import FILE, File, Manifest, ModelIdentity, damaged, read_manifest, unreadable
from engines.errors import DatastoreProblem
from engines.folders import checksum, open_file

_SPARSE = {f"{name}.bin" for name in ("tokens", "suffixes", "documents", "places", "lines", "names", "name_ends")}


def manifest_stamp(folder: Path) -> tuple[int, int] | None:
    """Time of change and inode of a datastore's manifest, which another one in its place does not have; None where
    there is none."""
    try:
        found = (folder / FILE).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


class Store:
    """A datastore whose files are all there, at their sizes. An array is mapped when it is first asked for. Raises
    DatastoreProblem: the manifest is missing, damaged or of a newer format; a file is missing or of another size."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name, self.stamp = folder, folder.name, manifest_stamp(folder)
        self.manifest: Manifest = read_manifest(folder)
        for file in self.manifest.files:
            self._check(file)
        self._maps: dict[str, mmap.mmap | bytes] = {}

    def _check(self, file: File) -> None:
        try:
            about = (self.folder / file.path).stat()
        except (FileNotFoundError, NotADirectoryError):
            about = None
        except OSError as error:
            raise unreadable(self.folder, file.path, error) from None
        if about is None or not stat.S_ISREG(about.st_mode):
            raise damaged(self.folder, f"its file {file.path} is missing")
        if (size := about.st_size) != file.size:
            raise damaged(self.folder, f"its file {file.path} has {size:,} bytes instead of {file.size:,}")

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises DatastoreProblem if the token ids of this datastore mean something else to the tokenizer."""
        if fingerprint != self.manifest.tokenizer:
            raise DatastoreProblem(f"datastore {self.name} was built with another tokenizer than this model's",
                                   "choose a datastore of this tokenizer, or build one: spec-tui datastore build")

    def check_model(self, model: ModelIdentity) -> None:
        """Raises DatastoreProblem if there is no dense part, or its keys are of another model."""
        own = self.manifest.model
        if own is None:
            raise DatastoreProblem(f"datastore {self.name} has no dense part",
                                   "build one with: spec-tui datastore build --kind dense")
        if (own.fingerprint, own.width) != (model.fingerprint, model.width):
            raise DatastoreProblem(
                f"the keys of datastore {self.name} are hidden states of {own.name}, not of {model.name}",
                "choose a datastore of this model, or build one: spec-tui datastore build --kind dense",
            )

    def has(self, name: str) -> bool:
        """Whether there is an array of this name (its file is ``name.bin``)."""
        file = self.manifest.file(f"{name}.bin")
        return file is not None and file.dtype is not None

    def array(self, name: str, dtype: str | None = None, ndim: int = 1) -> np.ndarray:
        """An array of the datastore, mapped into memory, read only. ``dtype``: as the manifest must have it; None
        accepts any. Raises DatastoreProblem: there is none with this name, dtype and number of dimensions, or it cannot
        be read."""
        file = self.manifest.file(f"{name}.bin")
        if file is None or file.dtype is None or len(file.shape) != ndim or dtype not in (None, file.dtype):
            raise damaged(self.folder, f"it has no array {name!r} as this program needs it")
        return np.frombuffer(self.bytes(file.path), file.dtype).reshape(file.shape)

    def bytes(self, path: str) -> mmap.mmap | bytes:
        """The content of a file, mapped into memory; slices of it are bytes. Raises DatastoreProblem."""
        if path not in self._maps:
            file = self.manifest.file(path)
            if file is None:
                raise damaged(self.folder, f"it has no file {path!r}")
            try:
                with open_file(self.folder / path) as stream:
                    content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if file.size else b""
            except OSError as error:
                raise unreadable(self.folder, path, error) from None
            except ValueError as error:  # it has become empty
                raise damaged(self.folder, f"its file {path} cannot be read ({error})") from None
            if len(content) != file.size:
                raise damaged(self.folder, f"its file {path} has changed")
            self._maps[path] = content
        return self._maps[path]

    def sizes(self, part: str, share: float = 1.0) -> dict[str, int]:
        """Bytes of each file that the searches of a part need, sparse or dense, or of a share of each."""
        other = {"suffixes.bin"} if part == "dense" else {f.path for f in self.manifest.files} - _SPARSE
        return {f.path: round(share * f.size) for f in self.manifest.files if f.path not in other}

    def verify(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read every file and compare its checksum. ``progress`` gets the bytes done and their total; what it raises
        leaves this method. Raises DatastoreProblem: files are damaged; the message names them all; or, where none is,
        one could not be read."""
        done, total, bad, unread = 0, self.manifest.size, [], None
        for file in self.manifest.files:
            try:
                found = checksum(self.folder / file.path, lambda read, before=done: progress(before + read, total))
            except FileNotFoundError:
                found = "missing"
            except OSError as error:
                unread = unread or unreadable(self.folder, file.path, error)
                found = file.sha256
            done += file.size
            if found != file.sha256:
                bad.append(file.path)
        if bad:
            raise damaged(self.folder, f"damaged: {', '.join(bad)}")
        if unread is not None:
            raise unread


@dataclass(frozen=True, slots=True)
class DocumentPlace:
    """A position, as a person would look it up.

    Attributes:
        document: its number.
        source: the file (relative to what was named at the build), prompt or row of the document. Untrusted.
        line: of the source, from 1; None if the source has no lines.
        offset: how many tokens of the document come before it.
    """

    document: int
    source: str
    line: int | None
    offset: int


class Documents:
    """The documents of a datastore. Positions count tokens, and the separator after each document.

    Arrays: ``documents`` int32 [documents], the position at which each begins; ``places`` int32 [documents, 2], the
    number of its source and the line it begins at (0: no lines); ``lines`` int32, for all documents the positions of
    the tokens that begin the further lines; ``names`` and ``name_ends``, the sources in UTF-8.

    Raises:
        DatastoreProblem: an array is missing or doesn't fit the others.
    """

    def __init__(self, store: Store) -> None:
        self._tokens = store.array("tokens")
        begins = store.array("documents", "<i4")
        self._places = store.array("places", "<i4", ndim=2)
        store.array("lines", "<i4")
        self._names, self._name_ends = store.array("names", "|u1"), store.array("name_ends", "<i8")
        shape = (store.manifest.documents, 2)
        if len(begins) != shape[0] or self._places.shape != shape or not len(begins):
            raise damaged(store.folder, "its table of documents doesn't fit")
        self._vocab_size = store.manifest.vocab_size
        # Python's integers: one by one they cost a fraction of numpy's.
        self._begins, self._lines = (
            memoryview(store.bytes(f"{name}.bin")).cast("i") for name in ("documents", "lines"))
        self.source = cache(self._source)

    def __len__(self) -> int:
        return len(self._begins)

    def document(self, position: int) -> int:
        """Number of the document that a position is in."""
        return max(0, bisect_right(self._begins, position) - 1)

    def bounds(self, document: int) -> tuple[int, int]:
        """First position of a document, and the position of its separator."""
        following = document + 1
        end = self._begins[following] if following < len(self) else len(self._tokens)
        return self._begins[document], end - 1

    def first(self, fraction: float) -> int:
        """Where the first documents end that together have this share of the positions, in 0..1, or just more: the
        first position that is not theirs."""
        ends = len(self._tokens)
        count = bisect_left(self._begins, math.ceil(fraction * ends))
        return ends if not 0 < count < len(self) else self._begins[count]

    def place(self, position: int) -> DocumentPlace:
        """Document, source and line of a position."""
        document = self.document(position)
        begin, _ = self.bounds(document)
        source, line = self._places[document].tolist()
        if line:
            line += bisect_right(self._lines, position) - bisect_left(self._lines, begin)
        return DocumentPlace(document, self.source(source), line or None, position - begin)

    def _source(self, number: int) -> str:
        """Name of a source by its number, "?" if there is none."""
        if not 0 <= number < len(self._name_ends):
            return "?"
        begin = int(self._name_ends[number - 1]) if number else 0
        return self._names[max(begin, 0) : max(int(self._name_ends[number]), 0)].tobytes().decode("utf-8", "replace")

    def passage(self, position: int, before: int = 16, after: int = 32) -> tuple[list[int], int]:
        """Token ids around a position, all of its own document, and the index of the position among them."""
        begin, end = self.bounds(self.document(position))
        first = max(begin, position - before, 0)
        tokens = self._tokens[first : max(first, min(end, position + after))].tolist()
        return [t for t in tokens if t < self._vocab_size], position - first
