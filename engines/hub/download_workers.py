"""Threads that fetch files of the hub, one content after the other: resumed, checked, linked under their names."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

from engines.errors import ModelUnavailable
from engines.hub import hub_cache as cache
from engines.hub.download_progress import DownloadProgress
from engines.hub.hub_api import AGAIN, Listing, RemoteFile, content

_WORKERS = 4
_BLOCK = 1 << 20
_PAUSES = (0.5, 1, 2, 4, 8)  # seconds before a lost connection is tried again, as long as nothing comes
_TRANSIENT = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Blob:
    """A content, and the files of the listing that have it."""

    path: Path
    files: tuple[RemoteFile, ...]

    @property
    def size(self) -> int:
        """Bytes of the whole content."""
        return self.files[0].size

    @property
    def complete(self) -> bool:
        """Whether all of it is here."""
        return _size(self.path) == self.size

    @property
    def partial(self) -> Path:
        """Where it lies until it is complete."""
        return self.path.with_name(f"{self.path.name}.incomplete")

    @property
    def fetched(self) -> int:
        """Bytes that are here of one that is not complete."""
        return min(_size(self.partial) or 0, self.size)


class Workers:
    """Threads that fetch and link one content after the other; no two write the same. After ``stop`` none of them
    writes anything more, though one may hang in a silent connection for some seconds yet."""

    def __init__(self, listing: Listing, blobs: list[Blob], snapshot: Path, meter: DownloadProgress) -> None:
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

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and (blob := self._next()) is not None:
                self._fetch(blob)
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

    def _next(self) -> Blob | None:
        with self._lock:
            return self._queue.popleft() if self._queue else None

    def _fetch(self, blob: Blob) -> None:
        if not blob.complete and not self._fill(blob):
            return
        with self._lock:
            if self._stop.is_set():
                return
            if not blob.complete:
                os.replace(blob.partial, blob.path)
            for file in blob.files:
                cache.link(blob.path, self._snapshot / file.name)

    def _fill(self, blob: Blob) -> bool:
        """Fetch what a partial file lacks and check it as a whole; False if stopped on the way."""
        tries, file = 0, blob.files[0]
        with open(blob.partial, "ab+", buffering=0) as out:  # a buffer would be written after a stop
            digest = self._digest(file, out)
            while digest is not None and (have := digest.size) < file.size:
                problem = self._stream(file, out, digest)
                if self._stop.is_set():
                    return False
                tries = 0 if digest.size > have else tries + 1
                if problem is not None or digest.size == have:
                    self._pause(file, tries, problem)
            if digest is None:
                return False
            # what another program appended meanwhile is in the file, not in the digest
            if digest.hex() == file.digest and os.fstat(out.fileno()).st_size == file.size:
                return True
        with self._lock:
            if self._stop.is_set():
                return False
            blob.partial.unlink(missing_ok=True)
        raise ModelUnavailable(
            f"{file.name} arrived damaged: it is not what the hub lists", "it was thrown away: try again"
        )

    def _digest(self, file: RemoteFile, out: IO[bytes]) -> _Digest | None:
        """The digest of what is here already; None if stopped on the way. More than there should be is thrown away."""
        digest = _Digest(file)
        if out.seek(0, os.SEEK_END) > file.size and not self._empty(out):
            return None
        out.seek(0)
        with self._meter.checking() as count:
            while block := out.read(_BLOCK):
                digest.add(block)
                count(len(block))
                if self._stop.is_set():
                    return None
        return digest

    def _empty(self, out: IO[bytes]) -> bool:
        """Throw away what is there; False if stopped."""
        with self._lock:
            if not self._stop.is_set():
                out.truncate(0)
            return not self._stop.is_set()

    def _stream(self, file: RemoteFile, out: IO[bytes], digest: _Digest) -> Exception | None:
        """One request for the rest of a file. Returns what ended it early, if another try may help."""
        from huggingface_hub import errors

        try:
            with content(self._listing, file.name, f"bytes={digest.size}-" if digest.size else None) as response:
                if digest.size and not _continues(response, digest.size):
                    if not self._empty(out):
                        return None
                    self._meter.add(-digest.size)
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
            with self._lock:
                if self._stop.is_set():
                    return
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
        self._stop.wait(_PAUSES[tries])


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


def _continues(response: Any, start: int) -> bool:
    """Whether an answer holds what was asked for, and not the file from its beginning."""
    return response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _write(out: IO[bytes], block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[out.write(rest) :]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
