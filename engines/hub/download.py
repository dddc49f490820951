"""Files of the hub into its cache: several at a time, resumable, checked, stopped by a BaseException of the progress
report.

Bytes go through plain HTTP into ``blobs/DIGEST.incomplete``; what lies there is continued with a Range request, by this
or a later process. huggingface_hub's own download (2.4, with and without hf_xet) writes into a file of a random name,
deletes it when it is interrupted, can't be stopped between two reports, and believes the digest that an answer names.
The layout of its cache is kept, so that it and transformers read what lies there.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from engines.errors import ModelUnavailable
from engines.hub import hub_cache as cache
from engines.hub.download_progress import DownloadProgress, in_bytes
from engines.hub.download_workers import Blob, Workers
from engines.hub.hub_api import TICK, Listing, hub_errors
from engines.progress import Loading

Progress = Callable[[Loading], None]


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
        self._unlinked = [listing.files[n] for n in names if not (self._snapshot / n).exists()]
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
            BaseException: whatever ``progress`` raises; it is called about four times a second on this thread.
        """
        with hub_errors(self._listing.name, self._listing.revision), ExitStack() as stack:
            (self._home / "blobs").mkdir(parents=True, exist_ok=True)
            self._lock(stack, progress)
            self._meter.begin()
            workers = Workers(self._listing, self._blobs(names), self._snapshot, self._meter)
            try:
                while not workers.ended.wait(TICK):
                    progress(self._meter.report())
            finally:
                workers.stop()
            if workers.error is not None:
                raise workers.error
            cache.remember(self._listing.name, self._listing.revision, self._listing.commit)
        return self._snapshot

    def _blobs(self, names: Iterable[str]) -> list[Blob]:
        """The contents of those of the files that are not linked: one for all names of the same content."""
        wanted, same = set(names), {}
        for file in self._unlinked:
            if file.name in wanted:
                same.setdefault(file.digest, []).append(file)
        return [Blob(self._home / "blobs" / digest, tuple(files)) for digest, files in same.items()]

    def _lock(self, stack: ExitStack, progress: Progress) -> None:
        """Wait until no other process downloads this model: two would write the same partial files."""
        from huggingface_hub.utils import WeakFileLock

        place = cache.folder() / ".locks" / self._home.name / "spec-tui.lock"
        place.parent.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                stack.enter_context(WeakFileLock(place, timeout=TICK))
                return
            except TimeoutError:
                progress(Loading(f"waiting: another process downloads {self._listing.name}", 0.0, self.bytes))


def check_room(size: int, name: str) -> None:
    """Raises ModelUnavailable where the disk of the cache has less room than ``size`` bytes."""
    place = next(p for p in (cache.folder(), *cache.folder().absolute().parents) if p.exists())
    free = shutil.disk_usage(place).free
    if size > free:
        raise ModelUnavailable(
            f"{name} takes {in_bytes(size)} more, the disk of {cache.folder()} has {in_bytes(free)} free",
            "make room, or set HF_HOME to a folder on a larger disk",
        )
