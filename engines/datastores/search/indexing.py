"""Indexes on the disk: built in a process of their own, and checked before they are opened.

Their libraries write to the terminal, cannot be interrupted and crash on damaged files. A process of its own protects
a build from that, and checksums are compared before the libraries read a file.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import numpy as np

from engines.datastores.search.ann import ExactIndex, Index, IndexDescription, choose, installed
from engines.datastores.search.ann_libraries import Faiss, LibraryIndex, Scann
from engines.datastores.storage.manifest import File, sync
from engines.errors import first_line
from engines.folders import checksum

FOLDER = "index"  # below the datastore's
_LIBRARIES: dict[str, type[LibraryIndex]] = {"scann": Scann, "faiss": Faiss}
_PROBES = 16
_CLOSE = 1e-2  # a key finds itself, or one as near
_NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of <sys/personality.h>
_KEPT = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT", "OMP_NUM_THREADS")  # of the environment
_TICK = 0.1  # seconds between calls of a build's progress


def build_index(
    keys: Path, shape: tuple[int, int], folder: Path, backend: str = "auto", tick: Callable[[], None] = lambda: None
) -> IndexDescription:
    """Make the index of a file of keys.

    Args:
        keys: file of float16, row-major, of this shape [n, d].
        folder: for the index's files; its old content is deleted. It stays empty for exact search.
        backend: one of ``ann.BACKENDS``.
        tick: called ten times a second; what it raises ends the build and leaves this function.

    Returns:
        What was made. If the library failed: exact search, with a remark.

    Raises:
        UsageProblem: no such back end, or it is not installed.
    """
    backend = choose(backend, shape[0])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    if backend == "exact":
        return IndexDescription(backend, "", {})
    library = _LIBRARIES[backend]
    settings = library.settings(shape[0])
    here = folder.parent
    order = {"module": library.__module__, "library": library.__name__, "shape": shape, "settings": settings,
             "keys": os.path.relpath(keys, here), "folder": folder.name}  # fmt: skip
    failed = _in_process(order, here, tick)
    for written in folder.iterdir():
        if failed:
            written.unlink()
        else:
            sync(written)
    if not failed:
        return IndexDescription(backend, library.version(), settings)
    return IndexDescription("exact", "", {}, f"{backend} could not build its index ({failed}): every key is searched")


def open_index(keys: np.ndarray, root: Path, description: IndexDescription, files: Iterable[File]) -> tuple[Index, str]:
    """The index of a datastore, or exact search where it can't be used.

    Args:
        keys: float16 [n, d].
        root: the datastore's folder.
        files: of its manifest; those of the index are compared with their checksums first.

    Returns:
        The index, and why it is not the one the datastore has, in a sentence ("" if it is).
    """
    backend = description.backend
    if backend == "exact":
        return ExactIndex(keys), description.remark
    if not installed(backend):
        return ExactIndex(keys), f"{backend} is not installed: all {len(keys):,} keys are searched, which is slower"
    try:
        _check(root, [f for f in files if f.path.startswith(f"{FOLDER}/")])
        index = _LIBRARIES[backend](keys, root / FOLDER, description.settings)
        _probe(index)
        return index, ""
    except Exception as error:  # whatever a library of C++ throws at a file it can't read
        reason = f"the {backend} {description.version} index can't be used ({first_line(error)})"
        return ExactIndex(keys), f"{reason}: all {len(keys):,} keys are searched, which is slower"


def _check(root: Path, files: list[File]) -> None:
    """Raises ValueError unless the index's files are as they were written, and no others lie there."""
    if {p.name for p in (root / FOLDER).iterdir()} != {f.path.partition("/")[2] for f in files}:
        raise ValueError("files are missing, or there are files that do not belong to it")
    for file in files:
        if checksum(root / file.path) != file.sha256:
            raise ValueError(f"{file.path} is damaged")


def _probe(index: Index) -> None:
    """Raises ValueError if too few keys find themselves, or one that is as near."""
    some = np.linspace(0, len(index) - 1, min(_PROBES, len(index))).astype(np.int64)
    found = 0
    for number in some:
        key = index.keys[number].astype(np.float32)
        _, scores = index.search(key, 1)
        found += bool(len(scores)) and scores[0] >= (1 - _CLOSE) * (key @ key)
    if 2 * found < len(some):
        raise ValueError("it does not find the keys that are in it")


def _in_process(order: dict, here: Path, tick: Callable[[], None]) -> str:
    """Build an index in a process that works in this folder. Returns why it failed, "" if it did not."""
    paths = [str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH")]
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as said:
        asked.write(json.dumps(order).encode())
        asked.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__], cwd=here, env=environment, stdin=asked,
            stdout=subprocess.DEVNULL, stderr=said,
        )
        try:
            while (code := process.poll()) is None:
                tick()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_TICK)
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").strip().splitlines()
    return "" if code == 0 else (lines[-1][:200] if lines else f"exit code {code}")


def main() -> None:
    """Build the index that stdin, JSON, asks for."""
    _fix_addresses()
    order = json.load(sys.stdin)
    keys = np.fromfile(order["keys"], "<f2").reshape(order["shape"])
    library = getattr(import_module(order["module"]), order["library"])
    library.build(keys, Path(order["folder"]), order["settings"])


def _fix_addresses() -> None:
    """Start over without random addresses, if Linux allows it: ScaNN seeds its random numbers from them, and the same
    keys must give the same index. The same addresses also need the same environment and paths."""
    if sys.platform != "linux":
        return
    personality = ctypes.CDLL(None).personality
    now = personality(ctypes.c_ulong(0xFFFFFFFF))
    if now != -1 and not now & _NO_RANDOM_ADDRESSES and personality(ctypes.c_ulong(now | _NO_RANDOM_ADDRESSES)) != -1:
        os.execv(sys.executable, [sys.executable, "-P", "-m", "engines.datastores.search.indexing"])


if __name__ == "__main__":
    main()
