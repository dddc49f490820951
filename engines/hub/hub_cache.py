"""The hub's cache folder, looked at without the network."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from engines.folders import listed, read_file

_COMMIT = re.compile(r"[0-9a-f]{40}")


def folder() -> Path:
    """The folder that huggingface_hub caches in, by its own settings (HF_HOME, HF_HUB_CACHE)."""
    from huggingface_hub import constants

    return Path(os.path.expanduser(constants.HF_HUB_CACHE))  # it need not exist, nor be anything that can


def repository(name: str) -> Path:
    """Where the cache has, or would have, the files of a model of the hub."""
    return folder() / f"models--{name.replace('/', '--')}"


def snapshot(name: str, revision: str | None = None) -> Path | None:
    """The cached folder of a branch, tag or commit ("main" by default), None if there is none; it may be incomplete."""
    home, commit = repository(name), revision or "main"
    if not _COMMIT.fullmatch(commit):
        try:
            commit = read_file(home / "refs" / commit).decode().strip()
        except (OSError, ValueError):
            return None
    found = home / "snapshots" / commit
    return found if _COMMIT.fullmatch(commit) and os.path.isdir(found) else None


def models() -> Iterator[tuple[str, Path]]:
    """Hub id and snapshot of every model in the cache: the one that ``main`` names, else any."""
    for home in listed(folder(), "models--*"):
        name = home.name.removeprefix("models--").replace("--", "/")
        found = snapshot(name) or next(iter(listed(home, "snapshots/*")), None)
        if found is not None:
            yield name, found


def remember(name: str, revision: str, commit: str) -> None:
    """Note which commit a branch or tag is, as huggingface_hub does; nothing where the cache cannot be written."""
    if _COMMIT.fullmatch(revision):
        return
    with suppress(OSError):
        ref = repository(name) / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)


def link(blob: Path, place: Path) -> None:
    """Put a blob into a snapshot as huggingface_hub does, by a relative link; where there are none, by a hard link or a
    copy. Raises OSError."""
    from huggingface_hub import constants

    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    if not getattr(constants, "HF_HUB_DISABLE_SYMLINKS", False):
        with suppress(OSError):
            place.symlink_to(os.path.relpath(blob, place.parent))
            return
    try:
        place.hardlink_to(blob)
    except OSError:
        partial = place.with_name(f"{place.name}.incomplete")
        shutil.copyfile(blob, partial)
        partial.replace(place)


def drop(file: Path, digest: str) -> None:
    """Delete a file of a snapshot, its content of this digest, and folders that this leaves empty; what cannot be
    deleted stays."""
    home = file.parent.parent.parent
    blob = home / "blobs" / digest
    for path in (file, blob, file.parent, file.parent.parent, blob.parent, home):
        with suppress(OSError):
            path.rmdir() if os.path.isdir(path) else path.unlink()
