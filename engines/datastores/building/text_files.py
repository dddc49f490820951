"""Text files as documents: single files, folders, the standard library of this Python.

Files are read in the order of their names, once to choose and fingerprint them and once to build from them. Links
inside a folder are not followed. Files that are left out are counted by reason.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engines.datastores.building.corpus import Document
from engines.errors import DatastoreProblem, UsageProblem
from engines.hub.download_progress import in_bytes
from engines.progress import Progress, ProgressReporter, no_progress

LARGEST = 4 << 20  # bytes of a file in a folder; larger ones are data rather than text
_NOT_LIBRARY = {"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "pydoc_data", "ensurepip"}

Keep = Callable[[tuple[str, ...]], bool]


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file to read: its path, its name in the datastore, bytes, SHA-256."""

    path: Path
    name: str
    size: int
    digest: str


@dataclass(slots=True)
class TextFiles:
    """Text files as a ``corpus.Corpus``: each one document, with its lines.

    Attributes:
        roots: names of the files and folders that were asked for.
        files: those that are read, in order.
        skipped: how many are left out, by reason.
    """

    roots: tuple[str, ...]
    files: list[TextFile] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    unit: str = "bytes"

    @property
    def total(self) -> int:
        """Bytes to read."""
        return sum(f.size for f in self.files)

    @property
    def identity(self) -> dict[str, Any]:
        """See ``Corpus``: a digest of names and contents."""
        listed = "".join(f"{f.digest} {len(f.name)} {f.name}\n" for f in self.files)
        digest = hashlib.sha256(listed.encode("utf-8", "surrogatepass")).hexdigest()
        return {"kind": "files", "roots": list(self.roots), "files": len(self.files), "bytes": self.total,
                "digest": digest, "skipped": dict(sorted(self.skipped.items()))}

    def documents(self, resume: int | None = None) -> Iterator[tuple[Document, int]]:
        """See ``Corpus``. Raises DatastoreProblem for a file that has changed since it was chosen."""
        for i in range(resume or 0, len(self.files)):
            file = self.files[i]
            try:
                content = file.path.read_bytes()
            except OSError:
                content = b""
            if hashlib.sha256(content).hexdigest() != file.digest:
                raise DatastoreProblem(f"{file.name} has changed since the build began",
                                       "remove the unfinished build, and build again once files no longer change")
            yield Document(file.name, _text(content), line=1, size=file.size), i + 1


def text_files(paths: Sequence[Path], largest: int = LARGEST, progress: Progress = no_progress) -> TextFiles:
    """Choose the text files among files and in folders.

    These are left out and counted: links, hidden files and folders, irregular files, files in folders that are larger
    than ``largest`` bytes, and files that are empty, binary (with a zero byte), not UTF-8, unreadable, or equal to an
    earlier one.

    Args:
        paths: files, and folders with everything below them.
        progress: gets the number of files seen; what it raises leaves this function.

    Raises:
        UsageProblem: a path is neither a file nor a folder; no file is left.
    """
    return _choose([(path, _label(path)) for path in paths], largest, lambda parts: True, progress)


def standard_library(progress: Progress = no_progress) -> TextFiles:
    """The modules of the standard library of the Python that runs this, without their tests. Raises UsageProblem."""
    root = Path(sysconfig.get_path("stdlib"))

    def module(parts: tuple[str, ...]) -> bool:
        return parts[-1].endswith(".py") and not _NOT_LIBRARY.intersection(parts)

    return _choose([(root, library_name())], LARGEST, module, progress)


def library_name() -> str:
    """Name of this Python's standard library as a source."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _choose(roots: list[tuple[Path, str]], largest: int, keep: Keep, progress: Progress) -> TextFiles:
    found, reporter = TextFiles(tuple(label for _, label in roots)), ProgressReporter("reading", "files", progress)
    seen: set[str] = set()
    for root, label in roots:
        for path, name in _below(root, label, keep, found.skipped):
            content, reason = _read(path, None if path == root else largest)
            digest = hashlib.sha256(content).hexdigest()
            reason = reason or ("duplicate" if digest in seen else "")
            if reason:
                found.skipped[reason] += 1
            else:
                seen.add(digest)
                found.files.append(TextFile(path, name, len(content), digest))
            reporter.report(len(found.files) + found.skipped.total(), None)
    count = len(found.files) + found.skipped.total()
    reporter.report(count, count)
    if not found.files:
        left_out = ", ".join(f"{n} {reason}" for reason, n in sorted(found.skipped.items()))
        raise UsageProblem(
            f"no text to build from in {', '.join(found.roots)}" + (f" (left out: {left_out})" if left_out else ""),
            f"name files of UTF-8 text, or folders with files of {in_bytes(largest)} at most",
        )
    return found


def _below(root: Path, label: str, keep: Keep, skipped: Counter[str]) -> Iterator[tuple[Path, str]]:
    """Files of a root with their names, in order. The root itself may be a link."""
    if os.path.isfile(root):
        yield root, label
        return
    if not os.path.isdir(root):
        there = os.path.exists(root)
        stream = there or str(root) == "-"  # it can be read once, and it is read twice
        raise UsageProblem(f"{root} {'is neither a file nor a folder' if there else 'does not exist'}",
                           "save the text to a file first" if stream else "name a text file or a folder")
    for path in _walk(root, skipped):
        parts = path.relative_to(root).parts
        if keep(parts):
            yield path, "/".join((label, *parts))


def _walk(folder: Path, skipped: Counter[str]) -> Iterator[Path]:
    """Regular files below a folder, ordered by name; links and hidden files are counted."""
    open_ = [folder]
    while open_:
        path = open_.pop()
        try:
            mode = (path.stat() if path is folder else path.lstat()).st_mode
            if path is not folder and path.name.startswith("."):
                skipped["hidden"] += 1
            elif stat.S_ISLNK(mode):
                skipped["link"] += 1
            elif stat.S_ISDIR(mode):
                open_ += [path / name for name in sorted(os.listdir(path), reverse=True)]
            elif stat.S_ISREG(mode):
                yield path
            else:
                skipped["no regular file"] += 1
        except OSError:
            skipped["unreadable"] += 1


def _read(path: Path, largest: int | None) -> tuple[bytes, str]:
    """Content of a file, and why it is left out ("" if it is not)."""
    try:
        if largest is not None and path.stat().st_size > largest:
            return b"", "too large"
        content = path.read_bytes()
        if b"\0" in content:
            return b"", "binary"
        return content, "" if _text(content) else "empty"
    except UnicodeDecodeError:
        return b"", "not UTF-8"
    except OSError:
        return b"", "unreadable"


def _text(content: bytes) -> str:
    """The text without byte order mark and carriage returns, as a model would write it."""
    return content.decode("utf-8-sig").replace("\r\n", "\n")


def _label(path: Path) -> str:
    return (path.name if path.name not in ("", "..") else path.resolve().name) or "files"
