"""Where datastores lie and what they may be called: the user's own, and those that ship with the program."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from engines import user_folders as folders
from engines.datastores.storage import manifest as manifests
from engines.datastores.storage.manifest import Manifest
from engines.errors import DatastoreProblem, SpecError, UsageProblem
from engines.samples import sample_datastores

PARTIAL = ".partial"  # an unfinished build; no name of a datastore has a dot in it
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?", re.ASCII)
_RESERVED = re.compile(r"con|prn|aux|nul|com[0-9]|lpt[0-9]")  # by Windows


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A datastore that lies somewhere.

    Attributes:
        name, folder: what it is called, where it is.
        shipped: it came with the program.
        manifest: None for one that cannot be used.
        problem: why it cannot be used, in a sentence; "" for one that can.
        unfinished: a build that was interrupted, or is under way.
    """

    name: str
    folder: Path
    shipped: bool
    manifest: Manifest | None = None
    problem: str = ""
    unfinished: bool = False


def check_name(name: str) -> str:
    """The name, if a datastore may be called so. Raises UsageProblem."""
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise UsageProblem(
            f"{name[:80]!r} cannot be the name of a datastore",
            "use up to 64 of a-z, 0-9, - and _, beginning and ending with a letter or digit",
        )
    return name


def home() -> Path:
    """Folder of the user's datastores, whether it exists or not."""
    return folders.data() / "datastores"


def find(name: str) -> Path:
    """The folder of a datastore; the user's own goes before a shipped one of the same name.

    Raises:
        UsageProblem: not a name, or of none there is (those at hand are named).
    """
    check_name(name)
    for folder in _homes():
        if (folder / name).is_dir():
            return folder / name
    at_hand = [entry.name for entry in listing() if not entry.unfinished]
    hint = f"at hand: {', '.join(at_hand)}" if at_hand else "there are none yet"
    raise UsageProblem(f"there is no datastore {name!r}", f"{hint}; spec-tui datastore build makes one")


def listing() -> list[CatalogEntry]:
    """Every datastore there is, the user's own first, by name; damaged and unfinished ones too, and marked so."""
    shipped, found = sample_datastores(), {}
    for home_ in _homes():
        for folder in _folders(home_):
            unfinished = folder.name.endswith(PARTIAL)
            name = folder.name.removesuffix(PARTIAL)
            if _NAME.fullmatch(name) and (name, unfinished) not in found:
                found[name, unfinished] = _entry(name, folder, home_ == shipped, unfinished)
    return sorted(found.values(), key=lambda e: (e.shipped, e.name, e.unfinished))


def remove(name: str) -> None:
    """Delete a datastore of the user's, and what an interrupted build of it left.

    Raises:
        UsageProblem: there is none, or it ships with the program.
        DatastoreProblem: it is being built, or the system does not let it go.
    """
    from engines.datastores.building.build_journal import locked

    check_name(name)
    folder, partial = home() / name, home() / (name + PARTIAL)
    if not folder.is_dir() and not partial.is_dir():
        find(name)
        raise UsageProblem(f"datastore {name} ships with the program", "only what you built can be removed")
    with locked(name):
        for place in (folder, partial):
            discard(place)


def discard(folder: Path) -> None:
    """Delete a folder, or a link to one (never what it leads to). Raises DatastoreProblem."""
    try:
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            (folder / manifests.FILE).unlink(missing_ok=True)  # first: half a datastore must not look like one
            shutil.rmtree(folder)
    except OSError as error:
        raise DatastoreProblem(
            f"{folder.name} cannot be removed ({error.strerror})", "close what uses it, then remove it again"
        ) from None


def _homes() -> tuple[Path, ...]:
    shipped = sample_datastores()
    return (home(),) if shipped is None else (home(), shipped)


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(p for p in parent.iterdir() if p.is_dir())
    except OSError:
        return []


def _entry(name: str, folder: Path, shipped: bool, unfinished: bool) -> CatalogEntry:
    from engines.datastores.storage.datastore import Store

    if unfinished:
        return CatalogEntry(name, folder, shipped, problem="its build is not finished", unfinished=True)
    try:
        return CatalogEntry(name, folder, shipped, Store(folder).manifest)
    except SpecError as error:
        return CatalogEntry(name, folder, shipped, problem=error.message)
