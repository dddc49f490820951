"""A build under way: NAME.partial, what of it is safely on the disk, and the rename that makes it a datastore.

Files grow at their end only. ``commit`` first brings them to the disk, then notes their lengths and the state of the
stage in the journal, whole or not at all; whoever resumes cuts them to these lengths and goes on. So a build that was
interrupted writes the bytes that it would have written anyway.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from engines.datastores.storage import catalog as places
from engines.datastores.storage import manifest as manifests
from engines.datastores.storage.manifest import File, Manifest
from engines.errors import DatastoreProblem, UsageProblem

_JOURNAL = "journal"
_DISK = {errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, getattr(errno, "EDQUOT", 0)}
_CHUNK = 1 << 22


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a name, against other processes that build or remove it. Raises DatastoreProblem where one holds it."""
    from filelock import FileLock, Timeout

    home = places.home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = FileLock(home / f".{name}.lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise DatastoreProblem(f"datastore {name} is being built", "wait for that build, or stop it") from None
    except OSError as error:
        raise _unwritable(error) from None
    try:
        yield
    finally:
        lock.release()


class BuildJournal:
    """The folder of a build under way; see ``workspace``.

    Attributes:
        folder: where files are written.
        created: when this build began, however often it was interrupted.
        remark: what became of an earlier attempt, in a sentence; "" if there is nothing to say.
    """

    def __init__(self, name: str, identity: dict[str, Any], order: dict[str, Any] | None = None) -> None:
        self.name, self.folder = name, places.home() / (name + places.PARTIAL)
        self.remark = ""
        self._identity = _digest(json.dumps(identity, sort_keys=True))
        self._order = order
        self._journal: dict[str, Any] = {}
        self._open: dict[str, IO[bytes]] = {}

    @property
    def created(self) -> str:
        return self._journal["created"]

    @property
    def begun(self) -> bool:
        """Whether anything was committed."""
        return bool(self._journal.get("stages"))

    def state(self, stage: str) -> Any:
        """What the last ``commit`` of a stage noted, None if there was none."""
        return self._journal["stages"].get(stage)

    def appending(self, path: str) -> IO[bytes]:
        """A file to write at the end of, as the last ``commit`` left it."""
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

    def close(self) -> None:
        """Close the open files; what was not committed is cut off when they are opened again."""
        for stream in self._open.values():
            with suppress(OSError):  # a full disk, of what doesn't matter
                stream.close()
        self._open.clear()

    def finish(self, manifest: Callable[[tuple[File, ...]], Manifest], files: dict[str, tuple[str, tuple] | None],
               progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
        """Checksums, the manifest, and the rename that makes this a datastore. Returns its folder.

        Args:
            manifest: makes the manifest of the list of files.
            files: what belongs to the datastore: path -> (dtype, shape), or None where it is no array.
            progress: told the bytes read and their total; what it raises leaves this method.
        """
        for stream in self._open.values():
            stream.flush()
        self.close()
        sizes = {path: (self.folder / path).stat().st_size for path in files}
        total, done, listed = sum(sizes.values()), 0, []
        for path, kind in sorted(files.items()):
            digest = hashlib.sha256()
            with open(self.folder / path, "rb") as stream:
                while chunk := stream.read(_CHUNK):
                    digest.update(chunk)
                    done += len(chunk)
                    progress(done, total)
                os.fsync(stream.fileno())
            dtype, shape = kind or (None, None)
            listed.append(File(path, sizes[path], digest.hexdigest(), dtype, shape))
        self._discard_others({_JOURNAL, *files})
        manifests.write(self.folder, manifest(tuple(listed)))
        return self._rename()

    def _rename(self) -> Path:
        target, old = self.folder.with_suffix(""), self.folder.with_suffix(".replaced" + places.PARTIAL)
        _sync(self.folder / manifests.FILE)
        _sync(self.folder)
        places.discard(old)
        if target.exists():
            os.replace(target, old)
        os.replace(self.folder, target)
        _sync(target.parent)
        (target / _JOURNAL).unlink()  # until here a build that is cut off can be taken up again
        places.discard(old)
        return target

    def _discard_others(self, kept: set[str]) -> None:
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_file() and path.relative_to(self.folder).as_posix() not in kept:
                path.unlink()

    def begin(self, fresh: bool) -> None:
        """Take up the unfinished build that lies here, or start over. Raises DatastoreProblem, UsageProblem."""
        if self.folder.exists() and not fresh:
            self._journal = _read_journal(self.folder)
            if self._journal and self._journal["identity"] != self._identity:
                raise UsageProblem(
                    f"an unfinished build of {self.name} was begun from other sources or with other options",
                    "repeat the command it was begun with, or start over with --fresh",
                )
            self.remark = "going on with the unfinished build" if self._journal else "the unfinished build was damaged"
        if not self._journal:
            places.discard(self.folder)
            self.folder.mkdir(parents=True)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            self._journal = {"identity": self._identity, "created": now, "stages": {}, "lengths": {},
                             "order": self._order}  # fmt: skip
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
    """What is on the disk, {} if it is not all there."""
    try:
        checksum, _, text = (folder / _JOURNAL).read_text("utf-8").partition("\n")
        if checksum != _digest(text):
            return {}
        found = json.loads(text)
        sizes = {path: (folder / path).stat().st_size for path in found["lengths"]}
        return found if all(sizes[path] >= n for path, n in found["lengths"].items()) else {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def begun_with(name: str) -> dict[str, Any] | None:
    """The ``order`` that an unfinished build was begun with; None where there is none or it is not known."""
    return _read_journal(places.home() / (places.check_name(name) + places.PARTIAL)).get("order")


@contextmanager
def build_journal(
    name: str, identity: dict[str, Any], fresh: bool = False, replace: bool = False, order: dict[str, Any] | None = None
) -> Iterator[BuildJournal]:
    """The place to build a datastore in, this process alone; an interrupted build of the same is taken up. One that was
    left before anything was committed leaves nothing.

    Args:
        name: of the datastore.
        identity: JSON: all that the bytes of the result depend on.
        fresh: start over, whatever an interrupted build left.
        replace: an existing datastore of this name gives way when the new one is complete.
        order: JSON, kept for whoever wants to go on with the build (``begun_with``).

    Raises:
        UsageProblem: not a name; there is a datastore of this name; the unfinished build is of something else.
        DatastoreProblem: another process builds it; the disk is full or can't be written.
    """
    places.check_name(name)
    with locked(name):
        _check_free(name, replace)
        place = BuildJournal(name, identity, order)
        try:
            place.begin(fresh)
            yield place
        except OSError as error:
            ours = str(error.filename or "").startswith(str(place.folder))
            if ours or error.errno in _DISK:  # not a pipe that progress was written to, nor a download
                raise _unwritable(error) from error
            raise
        finally:
            place.close()
            if not place.begun:
                places.discard(place.folder)


def _check_free(name: str, replace: bool) -> None:
    taken = [e for e in places.listing() if e.name == name and not e.unfinished]
    if any(e.shipped for e in taken):
        raise UsageProblem(f"a datastore that ships with the program is called {name}", "choose another name")
    if taken and not replace:
        raise UsageProblem(f"there is a datastore {name}", "choose another name, remove it first, or use --replace")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _sync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk, where the system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # folders on Windows
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _unwritable(error: OSError) -> DatastoreProblem:
    where = "SPEC_TUI_DATA_DIR chooses another place for datastores"
    return DatastoreProblem(f"the datastore cannot be written ({error.strerror or error})", f"make room; {where}")
