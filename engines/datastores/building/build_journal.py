"""A build in progress: the folder NAME.partial, a journal of what is safely on the disk, and the final rename.

Files only grow at their end. ``commit`` first brings them to the disk, then writes their lengths and the state of the
stage into the journal, atomically. A build that continues cuts the files to these lengths, so an interrupted build
writes the same bytes as an uninterrupted one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace as replaced
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from engines.datastores.storage import catalog
from engines.datastores.storage.manifest import FILE, File, Manifest, sync, write_manifest
from engines.errors import DatastoreProblem, UsageProblem, way_out
from engines.folders import checksum, read_file

_JOURNAL = "journal"
_DISK = {errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, getattr(errno, "EDQUOT", 0)}
EVERY = 2.0  # seconds between two commits of a stage that goes on


class BuildJournal:
    """The folder of a build in progress and its journal; see the module.

    Attributes:
        folder: where files are written.
        damaged: how many files an unfinished build had that was damaged, so that this one starts over; 0 if none was.
    """

    def __init__(self, name: str, identity: dict[str, Any], spec: dict[str, Any] | None = None) -> None:
        self.name, self.folder = name, catalog.home() / (name + catalog.PARTIAL)
        self.damaged = 0
        self._identity = _digest(json.dumps(identity, sort_keys=True))
        self._spec = spec
        self._journal: dict[str, Any] = {}
        self._open: dict[str, IO[bytes]] = {}
        self._committed = time.monotonic()

    @property
    def created(self) -> str:
        """When this build began, however often it was interrupted."""
        return self._journal["created"]

    @property
    def begun(self) -> bool:
        """Whether anything was committed."""
        return bool(self._journal.get("stages"))

    def state(self, stage: str) -> Any:
        """What the last ``commit`` of a stage noted, None if there was none."""
        return self._journal["stages"].get(stage)

    def open_to_append(self, path: str) -> IO[bytes]:
        """A file to extend, as the last ``commit`` left it."""
        if path not in self._open:
            target = self.folder / path
            if target.parent != self.folder:
                target.parent.mkdir(exist_ok=True)
            stream = self._open[path] = open(target, "ab")  # noqa: SIM115
            stream.truncate(self._journal["lengths"].get(path, 0))
        return self._open[path]

    def commit(self, stage: str, state: Any) -> None:
        """Bring all open files to the disk, then note their lengths and the stage's state (JSON)."""
        for path, stream in self._open.items():
            stream.flush()
            os.fsync(stream.fileno())
            self._journal["lengths"][path] = stream.seek(0, os.SEEK_END)
        self._journal["stages"][stage] = state
        self._write_journal()
        self._committed = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the last commit was some seconds ago."""
        return time.monotonic() - self._committed > EVERY

    def close(self) -> None:
        """Close the open files; what was not committed is cut off when they are opened again."""
        for stream in self._open.values():
            with suppress(OSError):  # a full disk; what is lost was not committed
                stream.close()
        self._open.clear()

    def finish(self, manifest: Manifest, files: dict[str, tuple[str, tuple] | None],
               progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
        """Compute checksums, write the manifest, and rename the folder into a datastore. Returns the new folder.

        Args:
            manifest: of the datastore, still without its list of files.
            files: the files of the datastore: path -> (dtype, shape), or None for a file that is no array.
            progress: gets the bytes read and their total; what it raises leaves this method.
        """
        for stream in self._open.values():
            stream.flush()
        self.close()
        sizes = {path: (self.folder / path).stat().st_size for path in files}
        total, done, listed = sum(sizes.values()), 0, []
        for path, array in sorted(files.items()):
            digest = checksum(self.folder / path, lambda read, before=done: progress(before + read, total))
            done += sizes[path]
            dtype, shape = array or (None, None)
            listed.append(File(path=path, size=sizes[path], sha256=digest, dtype=dtype, shape=shape))
            sync(self.folder / path)
        self._discard_others({_JOURNAL, *files})
        write_manifest(self.folder, replaced(manifest, files=tuple(listed)))
        return self._rename()

    def _rename(self) -> Path:
        target, old = self.folder.with_suffix(""), self.folder.with_suffix(catalog.REPLACED)
        sync(self.folder / FILE)
        sync(self.folder)
        catalog.discard(old)
        if os.path.exists(target):
            os.replace(target, old)
        os.replace(self.folder, target)
        sync(target.parent)
        (target / _JOURNAL).unlink()  # until here an interrupted build can continue
        catalog.discard(old)
        return target

    def _discard_others(self, kept: set[str]) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if os.path.isfile(path) and path.relative_to(self.folder).as_posix() not in kept:
                path.unlink()

    def take_up(self) -> None:
        """Read the journal of the unfinished build, if there is one. Raises DatastoreProblem: it cannot be read now."""
        if os.path.exists(self.folder):
            try:
                self._journal = _read_journal(self.folder)
            except OSError as error:
                raise DatastoreProblem(f"the unfinished build of {self.name} cannot be read ({error.strerror})",
                                       way_out(error, "start over with --fresh")) from None
            self.damaged = 0 if self._journal else len([*self.folder.rglob("*")])

    def begin(self) -> None:
        """Continue the unfinished build that was taken up, or start over. Raises DatastoreProblem, UsageProblem."""
        if self._journal and self._journal["identity"] != self._identity:
            raise UsageProblem(
                f"an unfinished build of {self.name} was begun from other sources or with other options",
                "repeat the command it was begun with, or start over with --fresh",
            )
        if os.path.exists(self.folder.with_suffix("")):  # else it may be all that is left of the datastore
            catalog.discard(self.folder.with_suffix(catalog.REPLACED))
        if not self._journal:
            catalog.discard(self.folder)
            self.folder.mkdir(parents=True)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._journal = {"identity": self._identity, "created": now, "stages": {}, "lengths": {},
                             "order": self._spec}  # fmt: skip
            self._write_journal()

    def _write_journal(self) -> None:
        temporary = self.folder / f"{_JOURNAL}.new"
        with open(temporary, "w", encoding="utf-8") as stream:
            text = json.dumps(self._journal)
            stream.write(f"{_digest(text)}\n{text}")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, self.folder / _JOURNAL)


def _read_journal(folder: Path) -> dict[str, Any]:
    """The journal on the disk; {} if it is incomplete or its files are, or if there is a link among them, which could
    lead to a file of something else. Raises OSError: a journal that is there cannot be read now."""
    try:
        if any(os.path.islink(path) for path in (folder, *folder.rglob("*"))):
            return {}
        digest, _, text = read_file(folder / _JOURNAL).decode().partition("\n")
        if digest != _digest(text):
            return {}
        journal = json.loads(text)
        sizes = {path: (folder / path).stat().st_size for path in journal["lengths"]}
        return journal if all(sizes[path] >= n for path, n in journal["lengths"].items()) else {}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def unfinished_spec(name: str) -> dict[str, Any] | None:
    """The ``spec`` that an unfinished build was begun with; None if there is none or it is not known."""
    folder = catalog.home() / (catalog.check_name(name) + catalog.PARTIAL)
    with suppress(OSError):
        return _read_journal(folder).get("order")
    return None


@contextmanager
def build_journal(
    name: str, identity: dict[str, Any], fresh: bool = False, replace: bool = False, spec: dict[str, Any] | None = None
) -> Iterator[BuildJournal]:
    """The journal to build a datastore with, for this process alone; an interrupted build of the same continues. A
    build that committed nothing leaves nothing.

    Args:
        name: of the datastore.
        identity: JSON with everything that the bytes of the result depend on.
        fresh: start over, whatever an interrupted build left.
        replace: an existing datastore of this name is replaced when the new one is complete.
        spec: JSON, stored for whoever continues the build (``unfinished_spec``).

    Raises:
        UsageProblem: the name is malformed or taken; the unfinished build is of something else.
        DatastoreProblem: another process builds it; the disk is full or can't be written; the unfinished build can't
            be read, or what a killed ``replace`` left can't be removed: all stays as it is.
    """
    catalog.check_name(name)
    with catalog.locked(name):
        check_free(name, replace)
        journal = BuildJournal(name, identity, spec)
        if not fresh:
            journal.take_up()
        try:
            journal.begin()
            yield journal
        except OSError as error:
            in_folder = str(error.filename or "").startswith(str(journal.folder))
            if in_folder or error.errno in _DISK:  # not a pipe that progress was written to, nor a download
                raise catalog.unwritable(error) from error
            raise
        finally:
            journal.close()
            if not journal.begun:
                catalog.discard(journal.folder)


def check_free(name: str, replace: bool = False) -> None:
    """Raises UsageProblem where a datastore has the name, unless it is one to replace."""
    taken = [e for e in catalog.listing() if e.name == name and not e.unfinished]
    if any(e.shipped for e in taken):
        raise UsageProblem(f"a datastore that ships with the program is called {name}", "choose another name")
    if taken and not replace:
        raise UsageProblem(f"there is a datastore {name}", "choose another name, remove it first, or use --replace")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
