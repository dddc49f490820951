"""An open datastore: its manifest, and its files mapped into memory, read only."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engines.datastores.storage import catalog as places
from engines.datastores.storage import manifest as manifests
from engines.datastores.storage.manifest import File, Manifest, ModelIdentity, damaged
from engines.errors import DatastoreProblem

_CHUNK = 1 << 22


class Store:
    """A datastore whose files are all there, at their sizes. Arrays are mapped when they are first asked for.

    Args:
        folder: of the datastore.

    Attributes:
        name: the folder's.

    Raises:
        DatastoreProblem: no or a damaged manifest, a newer format, a file that is missing or of another size.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.manifest: Manifest = manifests.read(folder)
        for file in self.manifest.files:
            self._check(file)
        self._maps: dict[str, mmap.mmap | bytes] = {}

    def _check(self, file: File) -> None:
        path = self.folder / file.path
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError:
            size = None
        if size is None:
            raise damaged(self.name, f"its file {file.path} is missing")
        if size != file.size:
            raise damaged(self.name, f"its file {file.path} has {size:,} bytes instead of {file.size:,}")

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises DatastoreProblem if the token ids of this datastore mean something else to the tokenizer."""
        if fingerprint != self.manifest.tokenizer:
            raise DatastoreProblem(
                f"datastore {self.name} was built with another tokenizer than this model's",
                "choose a datastore of this tokenizer, or build one: spec-tui datastore build",
            )

    def check_model(self, model: ModelIdentity) -> None:
        """Raises DatastoreProblem if this datastore has no dense part, or its keys are of another model or layer."""
        mine = self.manifest.model
        if mine is None:
            raise DatastoreProblem(
                f"datastore {self.name} has no dense part", "build one with: spec-tui datastore build --kind dense"
            )
        if (mine.fingerprint, mine.layer, mine.width) != (model.fingerprint, model.layer, model.width):
            raise DatastoreProblem(
                f"the keys of datastore {self.name} are hidden states of {mine.name}, layer {mine.layer}, "
                f"not of {model.name}, layer {model.layer}",
                "choose a datastore of this model, or build one: spec-tui datastore build --kind dense",
            )

    def has(self, name: str) -> bool:
        """Whether there is an array of this name (its file is ``name.bin``)."""
        file = self.manifest.file(f"{name}.bin")
        return file is not None and file.dtype is not None

    def array(self, name: str, dtype: str | None = None, ndim: int = 1) -> np.ndarray:
        """An array of the datastore, mapped into memory, read only.

        Args:
            dtype: what it has to be, as in the manifest; None takes any.

        Raises:
            DatastoreProblem: there is none of this name, dtype and number of dimensions; it cannot be read.
        """
        file = self.manifest.file(f"{name}.bin")
        if file is None or file.dtype is None or len(file.shape) != ndim or dtype not in (None, file.dtype):
            raise damaged(self.name, f"it has no array {name!r} as this program needs it")
        return np.frombuffer(self.bytes(file.path), file.dtype).reshape(file.shape)

    def bytes(self, path: str) -> mmap.mmap | bytes:
        """The content of a file, mapped into memory; slices of it are bytes. Raises DatastoreProblem."""
        if path not in self._maps:
            file = self.manifest.file(path)
            if file is None:
                raise damaged(self.name, f"it has no file {path!r}")
            try:
                with open(self.folder / path, "rb") as stream:
                    content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) if file.size else b""
            except (OSError, ValueError) as error:
                raise damaged(self.name, f"its file {path} cannot be read ({error})") from None
            if len(content) != file.size:
                raise damaged(self.name, f"its file {path} has changed")
            self._maps[path] = content
        return self._maps[path]

    def verify(self, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
        """Read every file and compare checksums; ``progress`` is told the bytes done and their total, and what it
        raises leaves this method.

        Raises:
            DatastoreProblem: files are damaged; names them all.
        """
        done, bad = 0, []
        for file in self.manifest.files:
            digest = hashlib.sha256()
            try:
                with open(self.folder / file.path, "rb") as stream:
                    while chunk := stream.read(_CHUNK):
                        digest.update(chunk)
                        done += len(chunk)
                        progress(done, self.manifest.size)
            except OSError:
                digest.update(b"unreadable")
            if digest.hexdigest() != file.sha256:
                bad.append(file.path)
        if bad:
            raise damaged(self.name, f"damaged: {', '.join(bad)}")


def open_store(name: str, tokenizer: str | None = None) -> Store:
    """Open a datastore by name, for a tokenizer of this fingerprint (None asks nothing).

    Raises:
        UsageProblem: there is none of this name.
        DatastoreProblem: it is damaged, of a newer format, or made with another tokenizer.
    """
    store = Store(places.find(name))
    if tokenizer is not None:
        store.check_tokenizer(tokenizer)
    return store
