"""Which datastores there are, where they lie and what they may be called: the user's own, and the shipped ones."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines import folders
from engines.datastores.storage.datastore import Store, manifest_stamp
from engines.datastores.storage.manifest import FILE, Manifest
from engines.errors import DatastoreProblem, SpecError, UsageProblem
from engines.folders import sample_datastores

PARTIAL = ".partial"  # an unfinished build; no name of a datastore has a dot in it
REPLACED = ".replaced" + PARTIAL  # a datastore in whose place a new one is put
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?", re.ASCII)
_RESERVED = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")  # by Windows
TABLE_PREFIX = "paper-"
"""Begins the names of datastores that are built for the tables of papers."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A datastore on the disk.

    Attributes:
        shipped: it came with the program.
        manifest: None if the datastore cannot be used.
        problem: a sentence that says why it cannot be used; "" if it can.
        hint: what the user can do about it.
        unfinished: a build that was interrupted or is running.
    """

    name: str
    folder: Path
    shipped: bool
    manifest: Manifest | None = None
    problem: str = ""
    unfinished: bool = False
    hint: str = ""

    @property
    def of_a_table(self) -> bool:
        """Whether it was built for a paper's table: such a one is searched only where it is named."""
        return self.name.startswith(TABLE_PREFIX)

    @property
    def size(self) -> int:
        """Bytes of its files, of an unfinished one of all in its folder; 0 if they cannot be counted."""
        if self.manifest is not None:
            return self.manifest.size
        try:
            return sum(p.stat().st_size for p in self.folder.rglob("*") if os.path.isfile(p))
        except OSError:
            return 0


def check_name(name: str) -> str:
    """The name, if a datastore may have it. Raises UsageProblem."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise UsageProblem(f"{name[:80]!r} cannot be the name of a datastore",
                           "use up to 64 of a-z, 0-9, - and _, beginning and ending with a letter or digit")
    return name


def home() -> Path:
    """Folder of the user's datastores, whether it exists or not."""
    return folders.data() / "datastores"


def find(name: str) -> Path:
    """The folder of a datastore; the user's own comes before a shipped one of the same name. Raises UsageProblem: the
    name is malformed, or there is no such datastore (the hint lists those there are)."""
    if (at := _place(check_name(name))) is not None:
        return at
    names = [entry.name for entry in listing() if not entry.unfinished]
    hint = f"datastores: {', '.join(names)}" if names else "there are none yet"
    raise UsageProblem(f"there is no datastore {name!r}", f"{hint}; spec-tui datastore build makes one")


def open_store(name: str, tokenizer: str | None = None) -> Store:
    """Open a datastore by name, for a tokenizer with this fingerprint (None for any).

    Raises:
        UsageProblem: there is none of this name.
        DatastoreProblem: it is damaged, of a newer format, or was made with another tokenizer.
    """
    store = Store(find(name))
    if tokenizer is not None:
        store.check_tokenizer(tokenizer)
    return store


def holds(store: Store) -> bool:
    """Whether opening a datastore's name would open the same one again: nobody removed or replaced it."""
    at = _place(store.name)
    return at == store.folder and store.stamp == manifest_stamp(at)


def listing() -> list[CatalogEntry]:
    """Every datastore, the user's own first, by name; damaged and unfinished ones are listed as such."""
    shipped, entries = sample_datastores(), {}
    for parent in _homes():
        for folder in filter(os.path.isdir, folders.listed(parent)):
            unfinished = folder.name.endswith(PARTIAL)
            name = folder.name.removesuffix(PARTIAL)
            if _NAME.fullmatch(name) and (name, unfinished) not in entries:
                entries[name, unfinished] = _entry(name, folder, parent == shipped, unfinished)
    return sorted(entries.values(), key=lambda e: (e.shipped, e.name, e.unfinished))


def remove(name: str) -> None:
    """Delete a datastore of the user's, and what interrupted builds of it left.

    Raises:
        UsageProblem: there is none, or it ships with the program.
        DatastoreProblem: it is being built, or the system does not allow it.
    """
    check_name(name)
    own = [home() / (name + ending) for ending in ("", PARTIAL, REPLACED)]
    if not any(map(os.path.isdir, own)):
        find(name)
        raise UsageProblem(f"datastore {name} ships with the program", "only what you built can be removed")
    with locked(name):
        for folder in own:
            discard(folder)


def discard(folder: Path) -> None:
    """Delete a folder, or a link to one (never the link's target). Raises DatastoreProblem."""
    try:
        if os.path.islink(folder):
            folder.unlink()
        elif os.path.exists(folder):
            (folder / FILE).unlink(missing_ok=True)  # first: half a datastore must not look like one
            shutil.rmtree(folder)
    except OSError as error:
        raise DatastoreProblem(f"{folder.name} cannot be removed ({error.strerror})",
                               "close what uses it, then remove it again") from None


def locked(name: str) -> AbstractContextManager[Any]:
    """Lock a name against other processes that build or remove it. Raises DatastoreProblem if one has locked it."""
    busy = DatastoreProblem(f"datastore {name} is being built", "wait for that build, or stop it")
    return folders.lock(home(), name, busy, unwritable)


def unwritable(error: OSError) -> DatastoreProblem:
    """The error for a disk that is full or read-only, and for a folder of somebody else."""
    return DatastoreProblem(f"the datastore cannot be written in {home()} ({error.strerror or error})",
                            folders.room_or(error, "set SPEC_TUI_DATA_DIR to another folder"))


def _homes() -> tuple[Path, ...]:
    shipped = sample_datastores()
    return (home(),) if shipped is None else (home(), shipped)


def _place(name: str) -> Path | None:
    return next((folder / name for folder in _homes() if os.path.isdir(folder / name)), None)


def _entry(name: str, folder: Path, shipped: bool, unfinished: bool) -> CatalogEntry:
    if unfinished:
        return CatalogEntry(name, folder, shipped, problem="its build is not finished", unfinished=True)
    try:
        return CatalogEntry(name, folder, shipped, Store(folder).manifest)
    except SpecError as error:
        return CatalogEntry(name, folder, shipped, problem=error.message, hint=error.hint)
