"""Files of the hub into its cache: several at a time, resumable, checked, stopped by a BaseException of the progress
report.

Bytes go through plain HTTP into ``blobs/DIGEST.incomplete``; what lies there is continued with a Range request, by this
or a later process. huggingface_hub's own download (2.4, with and without hf_xet) writes into a file of a random name,
deletes it when it is interrupted, can't be stopped between two reports, and believes the digest that an answer names.
The layout of its cache is kept, so that it and transformers read what lies there.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

from engines.errors import ModelUnavailable
from engines.folders import free_bytes, waited_lock
from engines.hub import hub_cache as cache
from engines.hub.download_progress import DownloadProgress, in_bytes
from engines.hub.hub_api import AGAIN, TICK, Listing, RemoteFile, content, hub_errors
from engines.progress import Loading

Progress = Callable[[Loading], None]
_WORKERS = 4
_BLOCK = 1 << 20
_PAUSES = (0.5, 1, 2, 4, 8)  # seconds before a lost connection is tried again, as long as nothing comes
_TRANSIENT = (408, 429, 500, 502, 503, 504)


class Download:
    """What is to be fetched of a model, in one or more goes.

    Attributes:
        files: those that the cache lacks, wholly or in part, and that the download ``beside`` does not bring.
        contents: the blobs of them.
        bytes: still to be fetched when this was made.
    """

    def __init__(self, listing: Listing, names: Iterable[str], what: str, beside: Download | None = None) -> None:
        self._listing = listing
        self._home = cache.repository(listing.name)
        self._snapshot = self._home / "snapshots" / listing.commit
        self._unlinked = [listing.files[n] for n in names if not os.path.exists(self._snapshot / n)]
        blobs = self._blobs(f.name for f in self._unlinked)
        others = beside.contents if beside is not None else frozenset()
        lacking = [blob for blob in blobs if not blob.complete and blob.path not in others]
        self.contents = frozenset(blob.path for blob in lacking)
        self.files = [f for blob in lacking for f in blob.files]
        self._partial = sum(blob.fetched for blob in lacking)
        self.bytes = sum(blob.size for blob in lacking) - self._partial
        self._meter = DownloadProgress(what, self.bytes, self._partial)

    @property
    def fetched(self) -> int:
        """Bytes fetched by this object so far."""
        return self._meter.done

    def announce(self, progress: Progress) -> None:
        """Say how much will be fetched, and refuse what the disk has no room for. Raises ModelUnavailable."""
        check_room(self.bytes, self._listing.name)
        if not self.files:
            return
        here = f" ({in_bytes(self._partial)} are here already)" if self._partial else ""
        count = f"{len(self.files)} file{'s' if len(self.files) > 1 else ''}"
        stage = f"downloading {self._listing.name}: {count}, {in_bytes(self.bytes)}{here}"
        progress(Loading(stage, None, self.bytes))

    def fetch(self, names: Iterable[str], progress: Progress) -> Path:
        """Fetch these files of it, and link them. Returns the snapshot folder.

        Raises:
            ModelUnavailable: refused, lost or damaged on the way, disk full; what was fetched stays.
            BaseException: one that is not an Exception and that ``progress`` raises to stop the download. It is called
                about four times a second on this thread.
        """
        lock = cache.folder() / ".locks" / self._home.name / "spec-tui.lock"
        waiting = Loading(f"waiting: another process downloads {self._listing.name}", 0.0, self.bytes)
        with hub_errors(self._listing.name, self._listing.revision):
            (self._home / "blobs").mkdir(parents=True, exist_ok=True)
            lock.parent.mkdir(parents=True, exist_ok=True)
            with waited_lock(lock, lambda: progress(waiting)):  # two would write the same partial files
                self._meter.begin()
                workers = _Workers(self._listing, self._blobs(names), self._snapshot, self._meter)
                try:
                    while not workers.ended.wait(TICK):
                        progress(self._meter.report())
                finally:
                    workers.stop()
                if workers.error is not None:
                    raise workers.error
                cache.remember(self._listing.name, self._listing.revision, self._listing.commit)
        return self._snapshot

    def _blobs(self, names: Iterable[str]) -> list[_Blob]:
        """The contents of those of the files that are not linked: one for all names of the same content."""
        wanted, same = set(names), {}
        for file in self._unlinked:
            if file.name in wanted:
                same.setdefault(file.digest, []).append(file)
        return [_Blob(self._home / "blobs" / digest, tuple(files)) for digest, files in same.items()]


def check_room(size: int, name: str, folder: Path | None = None, variable: str = "HF_HOME") -> None:
    """Raises ModelUnavailable where the disk of a folder, which an environment variable names, has less room than
    ``size`` bytes; None is the hub's cache."""
    folder = folder or cache.folder()
    free = free_bytes(folder)
    if size > free:
        raise ModelUnavailable(
            f"there is no room for {name}: {in_bytes(size)} more is needed, and {folder} has {in_bytes(free)} free",
            f"make room, or set {variable} to a folder on a larger disk",
        )


@dataclass(frozen=True, slots=True)
class _Blob:
    """A content, and the files of the listing that have it; ``partial`` is where it lies until it is complete."""

    path: Path
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        return self.files[0].size

    @property
    def complete(self) -> bool:
        return _size(self.path) == self.size

    @property
    def partial(self) -> Path:
        return self.path.with_name(f"{self.path.name}.incomplete")

    @property
    def fetched(self) -> int:
        """Bytes that are here of one that is not complete."""
        return min(_size(self.partial) or 0, self.size)


class _FetchStopped(Exception):
    """A thread was told to write nothing more."""


class _Workers:
    """Threads that fetch and link one content after the other; no two write the same. After ``stop`` none of them
    writes anything more, though one may hang in a silent connection for some seconds yet."""

    def __init__(self, listing: Listing, blobs: list[_Blob], snapshot: Path, meter: DownloadProgress) -> None:
        self.ended, self.error = Event(), None
        self._listing, self._snapshot, self._meter = listing, snapshot, meter
        self._queue = deque(sorted(blobs, key=lambda b: b.size))
        self._lock, self._stop = Lock(), Event()
        self._running = min(_WORKERS, len(blobs))
        if not blobs:
            self.ended.set()
        for _ in range(self._running):
            Thread(target=self._work, daemon=True).start()

    def stop(self) -> None:
        """Let no thread write anything from now on."""
        with self._lock:
            self._stop.set()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """While one thread writes. Raises _FetchStopped."""
        with self._lock:
            if self._stop.is_set():
                raise _FetchStopped
            yield

    def _work(self) -> None:
        try:
            while True:
                with self._writing():
                    if not self._queue:
                        return
                    blob = self._queue.popleft()
                self._fetch(blob)
        except _FetchStopped:
            pass
        except Exception as error:  # raised by the thread that waits
            with self._lock:
                self.error = self.error or error
                self._stop.set()
                self.ended.set()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self.ended.set()

    def _fetch(self, blob: _Blob) -> None:
        if not blob.complete:
            self._fill(blob)
        with self._writing():
            if not blob.complete:
                os.replace(blob.partial, blob.path)
            for file in blob.files:
                cache.link(blob.path, self._snapshot / file.name)

    def _fill(self, blob: _Blob) -> None:
        """Fetch what a partial file lacks and check it as a whole. Raises ModelUnavailable."""
        tries, file = 0, blob.files[0]
        with open(blob.partial, "ab+", buffering=0) as out:  # a buffer would be written after a stop
            digest = self._digest(file, out)
            while (have := digest.size) < file.size:
                problem = self._stream(file, out, digest)
                tries = 0 if digest.size > have else tries + 1
                if problem is not None or digest.size == have:
                    self._pause(file, tries, problem)
            # what another program appended meanwhile is in the file, not in the digest
            if digest.hex() == file.digest and os.fstat(out.fileno()).st_size == file.size:
                return
        with self._writing():
            blob.partial.unlink(missing_ok=True)
        raise ModelUnavailable(f"{file.name} arrived damaged: it is not what the hub lists",
                               "it was thrown away: try again")

    def _digest(self, file: RemoteFile, out: IO[bytes]) -> _Digest:
        """The digest of what is here already. More than there should be is thrown away."""
        digest = _Digest(file)
        if out.seek(0, os.SEEK_END) > file.size:
            self._empty(out)
        out.seek(0)
        with self._meter.checking() as count:
            while block := out.read(_BLOCK):
                digest.add(block)
                count(len(block))
                if self._stop.is_set():
                    raise _FetchStopped
        return digest

    def _empty(self, out: IO[bytes]) -> None:
        with self._writing():
            out.truncate(0)

    def _stream(self, file: RemoteFile, out: IO[bytes], digest: _Digest) -> Exception | None:
        """One request for the rest of a file. Returns what ended it early, if another try may help."""
        from huggingface_hub import errors

        begun = digest.size
        try:
            with content(self._listing, file.name, f"bytes={begun}-" if begun else None) as response:
                place = response.headers.get("Content-Range", "")
                if begun and not (response.status_code == 206 and place.startswith(f"bytes {begun}-")):
                    self._empty(out)  # the answer is the file from its beginning
                    self._meter.add(-begun)
                    digest.reset()
                self._take(response, out, digest, file.size)
        except errors.HfHubHTTPError as error:
            if error.response.status_code not in _TRANSIENT:
                raise
            return error
        except errors.HTTPError as error:
            return error
        return None

    def _take(self, response: Any, out: IO[bytes], digest: _Digest, size: int) -> None:
        for block in response.iter_bytes():
            block = block[: size - digest.size]
            with self._writing():
                _write(out, block)
            digest.add(block)
            self._meter.add(len(block))
            if digest.size == size:  # an answer may go on for ever
                return

    def _pause(self, file: RemoteFile, tries: int, problem: Exception | None) -> None:
        """Wait before the next try. Raises ModelUnavailable after the last one."""
        if tries >= len(_PAUSES):
            status = getattr(getattr(problem, "response", None), "status_code", None)
            why = f"the hub answers with error {status}" if status else "the connection to the hub was lost"
            raise ModelUnavailable(f"{why} while downloading {file.name} of {self._listing.name}", AGAIN)
        if self._stop.wait(_PAUSES[tries]):
            raise _FetchStopped


class _Digest:
    """The digest that the hub names a file's content by, as far as the content is known."""

    def __init__(self, file: RemoteFile) -> None:
        self._file = file
        self.reset()

    def reset(self) -> None:
        large = len(self._file.digest) == 64
        self._hash = hashlib.sha256() if large else hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)
        self.size = 0

    def add(self, block: bytes) -> None:
        self._hash.update(block)
        self.size += len(block)

    def hex(self) -> str:
        return self._hash.hexdigest()


def _write(out: IO[bytes], block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[out.write(rest) :]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
