"""Files of the hub into its cache: several at a time, resumable, checked, stopped by a BaseException of the progress
report.

Bytes go through plain HTTP into ``blobs/DIGEST.incomplete``; what lies there is continued with a Range request, by this
or a later process. huggingface_hub's own download (2.4, with and without hf_xet) keeps no partial file when it is
interrupted, and can't be stopped between two reports; it is used for the last step only: linking a finished blob into
the snapshot, as the platform allows.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Lock, Thread
from typing import IO, Any

from engines.errors import ModelUnavailable
from engines.events import Loading
from engines.sources import cache
from engines.sources.hub import AGAIN, TICK, Listing, RemoteFile, told
from engines.sources.meter import Meter, in_bytes

_WORKERS = 4
_BLOCK = 1 << 20
_PAUSES = (0.5, 1, 2, 4, 8)  # seconds before a lost connection is tried again, as long as nothing comes
_TRANSIENT = (408, 429, 500, 502, 503, 504)

Progress = Callable[[Loading], None]


class Download:
    """What is to be fetched of a model, in one or more goes.

    Attributes:
        files: those that the cache lacks, wholly or in part.
        bytes: still to be fetched when this was made.
    """

    def __init__(self, listing: Listing, names: Iterable[str], what: str) -> None:
        self._listing = listing
        self._blobs = cache.repository(listing.name) / "blobs"
        snapshot = cache.repository(listing.name) / "snapshots" / listing.commit
        self._unlinked = [listing.files[n] for n in names if not (snapshot / n).exists()]
        self.files = [f for f in self._unlinked if not (self._blobs / f.digest).exists()]
        self._partial = sum(min(_size(self._path(f)), f.size) for f in self.files)
        self.bytes = sum(f.size for f in self.files) - self._partial
        self._meter = Meter(what, self.bytes)

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
            BaseException: whatever ``progress`` raises; it is called about four times a second on this thread.
        """
        wanted = set(names)
        files = [f for f in self._unlinked if f.name in wanted]
        with told(self._listing.name, self._listing.revision), ExitStack() as stack:
            self._blobs.mkdir(parents=True, exist_ok=True)
            self._lock(stack, progress)
            self._meter.begin()
            workers = _Workers(self._listing, files, self._path, self._meter)
            try:
                while not workers.ended.wait(TICK):
                    progress(self._meter.report())
            finally:
                workers.stop()
            if workers.error is not None:
                raise workers.error
            cache.remember(self._listing.name, self._listing.revision, self._listing.commit)
        return cache.repository(self._listing.name) / "snapshots" / self._listing.commit

    def _lock(self, stack: ExitStack, progress: Progress) -> None:
        """Wait until no other process downloads this model: two would write the same partial files."""
        from huggingface_hub.utils import WeakFileLock

        place = cache.folder() / ".locks" / self._blobs.parent.name / "spec-tui.lock"
        place.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                stack.enter_context(WeakFileLock(place, timeout=TICK))
                return
            except TimeoutError:
                progress(Loading(f"waiting: another process downloads {self._listing.name}", 0.0, self.bytes))

    def _path(self, file: RemoteFile) -> Path:
        return self._blobs / f"{file.digest}.incomplete"


def check_room(size: int, name: str) -> None:
    """Raises ModelUnavailable where the disk of the cache has less room than ``size`` bytes."""
    place = next(p for p in (cache.folder(), *cache.folder().absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise ModelUnavailable(
            f"{name} takes {in_bytes(size)} more, the disk of {cache.folder()} has {in_bytes(free)} free",
            "make room, or set HF_HOME to a folder on a larger disk",
        )


class _Workers:
    """Threads that fetch and link one file after the other. After ``stop`` none of them writes anything more, though
    one may hang in a silent connection for some seconds yet."""

    def __init__(
        self, listing: Listing, files: list[RemoteFile], path: Callable[[RemoteFile], Path], meter: Meter
    ) -> None:
        self.ended, self.error = Event(), None
        self._listing, self._path, self._meter = listing, path, meter
        self._queue = deque(sorted(files, key=lambda f: f.size))
        self._lock, self._stop = Lock(), Event()
        self._running = min(_WORKERS, len(files))
        if not files:
            self.ended.set()
        for _ in range(self._running):
            Thread(target=self._work, daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._stop.set()

    def _work(self) -> None:
        try:
            while not self._stop.is_set() and (file := self._next()) is not None:
                self._fetch(file)
        except Exception as error:  # told by the thread that waits
            with self._lock:
                self.error = self.error or error
                self._stop.set()
                self.ended.set()
        finally:
            with self._lock:
                self._running -= 1
                if not self._running:
                    self.ended.set()

    def _next(self) -> RemoteFile | None:
        with self._lock:
            return self._queue.popleft() if self._queue else None

    def _fetch(self, file: RemoteFile) -> None:
        from huggingface_hub import constants, hf_hub_download

        partial = self._path(file)
        blob = partial.with_name(file.digest)
        if not blob.exists() and not self._complete(file, partial):
            return
        with self._lock:
            if self._stop.is_set():
                return
            if not blob.exists():
                os.replace(partial, blob)
        hf_hub_download(
            self._listing.name, file.name, revision=self._listing.commit, cache_dir=cache.folder(),
            endpoint=constants.ENDPOINT,
        )

    def _complete(self, file: RemoteFile, partial: Path) -> bool:
        """Fetch what a partial file lacks and check it as a whole; False if stopped on the way."""
        tries = 0
        with open(partial, "ab+", buffering=0) as out:  # a buffer would be written after a stop
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
        if digest.hex() == file.digest:
            return True
        partial.unlink()
        raise ModelUnavailable(
            f"{file.name} arrived damaged: it is not what the hub lists", "it was thrown away: try again"
        )

    def _digest(self, file: RemoteFile, out: IO[bytes]) -> _Digest | None:
        """The digest of what is here already; None if stopped on the way. More than there should be is cut off."""
        digest = _Digest(file)
        if out.seek(0, os.SEEK_END) > file.size:
            out.truncate(0)
        out.seek(0)
        while block := out.read(_BLOCK):
            digest.add(block)
            if self._stop.is_set():
                return None
        return digest

    def _stream(self, file: RemoteFile, out: IO[bytes], digest: _Digest) -> Exception | None:
        """One request for the rest of a file. Returns what ended it early, if another try may help."""
        from huggingface_hub import constants, errors, get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        url = hf_hub_url(self._listing.name, file.name, revision=self._listing.commit, endpoint=constants.ENDPOINT)
        headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
        if digest.size:
            headers["Range"] = f"bytes={digest.size}-"
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        try:
            with get_session().stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
                hf_raise_for_status(response)
                if digest.size and not _continues(response, digest.size):
                    self._meter.add(-digest.size)
                    out.truncate(0)
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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
