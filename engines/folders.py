"""Where things lie: what ships with the program, what the user built or searched, what can be measured again."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import os
import re
import select
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path, PurePath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import IO, Any

from engines.errors import UsageProblem

_HERE = Path(__file__).resolve().parent
_BLOCK = 1 << 22  # bytes of a file that are read at once
_TICK = 0.25  # seconds between two calls while a lock is waited for
_COMPRESSED = b"\x1f\x8b", b"PK", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd"  # how gzip, zip, bzip2, xz and zstd begin


def typed_path(name: str) -> Path:
    """The path that somebody typed; ``~`` stands for a home folder. Raises UsageProblem where it can be none."""
    if not name:  # Path takes it as the current folder; a variable that is not set in a shell is enough
        raise UsageProblem("the name of a file or folder is empty", "give one")
    try:
        path = Path(name).expanduser()
        check_reachable(path)
        return path
    except RuntimeError:
        user = PurePath(name).parts[0]
        raise UsageProblem(f"{user} stands for no home folder here", "write the path in full") from None
    except OSError as error:
        shown = name if len(name) <= 60 else f"{name[:30]}…{name[-29:]}"
        raise UsageProblem(f"{shown} cannot be read: {error.strerror}", "check the path") from None


def typed_file(name: str) -> Path:
    """As ``typed_path``, of anything but a model. Raises UsageProblem, too, for an address: a path of it has lost one
    of the slashes."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", name):
        raise UsageProblem(f"{name} is an address, not a file",
                           "give a path on this machine; save what is to be read to a file first")
    return typed_path(name)


def check_reachable(path: Path) -> None:
    """Raises OSError where it cannot be told whether a file is there: its name is too long, or a folder of its path
    may not be searched. ``os.path.exists`` and its like, which are asked everywhere else, say no."""
    path.exists()


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """What of this name lies in a folder, sorted; nothing where there is none, or it may not be read: a home folder may
    be somebody else's, and Path.glob raises where one above it may not be searched."""
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def open_input(path: Path) -> IO[bytes]:
    """Open a file that somebody named, or a pipe.

    Raises:
        OSError: it is not there or cannot be opened.
        UsageProblem: reading it would never end: a device, or a pipe that nobody writes to.
    """
    with _opened(path) as (handle, mode):
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISBLK(mode) or (stat.S_ISCHR(mode) and not os.isatty(handle)):
            raise UsageProblem(f"{path} is a device, not a file", "name a file")
        if stat.S_ISFIFO(mode) and _abandoned(handle):
            raise UsageProblem(f"{path} is a pipe that nobody writes to", "start what writes to it first")
        if hasattr(os, "set_blocking"):
            os.set_blocking(handle, True)
        return os.fdopen(handle, "rb")


def open_file(path: Path) -> IO[bytes]:
    """Open a file that a program wrote, ours or another, where what is in its place may be anything: to open a pipe may
    wait for ever. Raises OSError, also where it is none."""
    with _opened(path) as (handle, mode):
        if not stat.S_ISREG(mode):
            number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ESPIPE
            why = os.strerror(number) if stat.S_ISDIR(mode) else "it is a pipe or a device, not a file"
            raise OSError(number, why, str(path))
        return os.fdopen(handle, "rb")


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """A handle of what lies there, opened without waiting for who writes to a pipe, and its mode; closed where the
    block raises."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        yield handle, os.fstat(handle).st_mode
    except BaseException:
        os.close(handle)
        raise


def read_file(path: Path) -> bytes:
    """The content of a file that ``open_file`` opens. Raises OSError."""
    with open_file(path) as stream:
        return stream.read()


def read_input(path: Path, most: int, what: str) -> tuple[bytes, str]:
    """The content of a text file that somebody named, and its text, without a byte order mark.

    Args:
        most: bytes at most.
        what: the kind of file to name instead, in words.

    Raises:
        UsageProblem: it cannot be read, is too large, or is no text.
    """
    try:
        with open_input(path) as stream:
            content = stream.read(most + 1)
    except FileNotFoundError:
        raise UsageProblem(f"there is no file {path}", f"name {what}") from None
    except IsADirectoryError:
        raise UsageProblem(f"{path} is a folder", f"name {what}") from None
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}", f"name {what}") from None
    return content, text_of(content, str(path), most)


def text_of(content: bytes, name: str, most: int) -> str:
    """The text that was read under a name. Raises UsageProblem: more than ``most`` bytes, not UTF-8, zero bytes."""
    if len(content) > most:
        raise UsageProblem(f"{name} is longer than {most >> 20} MB", "give a part of it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if content.startswith(_COMPRESSED):
            raise UsageProblem(f"{name} is compressed", "unpack it first") from None
        raise UsageProblem(f"{name} is not text in UTF-8", "convert it, e.g. with iconv -t UTF-8") from None
    if "\0" in text:
        raise UsageProblem(f"{name} is not text: it contains NUL bytes", "give a text file")
    return text


def json_lines(text: str, where: Any, problem: str, hint: str, kind: type = object) -> Iterator[tuple[int, Any]]:
    """The number and the value of each line of JSON that is not blank. Raises UsageProblem, which names the line and
    the ``problem``: it is not JSON, or its value is not of the ``kind``."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = json.loads(line)
                if not isinstance(value, kind):
                    raise ValueError
            except (ValueError, RecursionError):
                raise UsageProblem(f"line {number} of {where} {problem}", hint) from None
            yield number, value


def checksum(path: Path, progress: Callable[[int], None] = lambda read: None) -> str:
    """SHA-256 of a file, hexadecimal. ``progress`` gets the bytes read so far. Raises OSError."""
    digest, read = hashlib.sha256(), 0
    with open_file(path) as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            read += len(block)
            progress(read)
    return digest.hexdigest()


def check_folder(file: Path, elsewhere: str) -> None:
    """Raises UsageProblem where there is no folder for a file that is to be written, or one is in its place;
    ``elsewhere`` is what to do."""
    if os.path.isdir(file):
        raise UsageProblem(f"{file} is a folder, not a file", elsewhere)
    if not os.path.isdir(file.parent):
        raise UsageProblem(f"there is no folder {file.parent} to write to", elsewhere)


def check_new_folder(folder: Path, elsewhere: str) -> None:
    """Raises UsageProblem where something is in a folder that is to be written, or it cannot be made; ``elsewhere`` is
    what to do."""
    try:
        taken = os.path.exists(folder) and (not os.path.isdir(folder) or any(folder.iterdir()))
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be written: {error.strerror}", elsewhere) from None
    if taken:
        raise UsageProblem(f"{folder} exists and is not empty", elsewhere)
    if why := refusal(folder):
        raise UsageProblem(f"{folder} cannot be written: {why}", elsewhere)


def refusal(folder: Path) -> str:
    """Why nothing can be written to a folder, which need not exist yet; "" where something can."""
    try:
        check_reachable(folder)
    except OSError as error:
        return error.strerror
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))
    if not os.path.isdir(there):
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)


def room_or(error: OSError, otherwise: str) -> str:
    """What the user can do where something could not be written: ``otherwise``; on a full disk, to make room too."""
    return f"make room, or {otherwise}" if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None)) else otherwise


def open_output(path: Path, mode: str) -> IO[bytes]:
    """Open a file, a device, or a pipe that somebody reads. Raises OSError, also where nobody does."""
    def begin(name: str, flags: int) -> int:
        try:
            handle = os.open(name, flags | getattr(os, "O_NONBLOCK", 0), 0o666)
        except OSError as error:
            if error.errno == errno.ENXIO and path.is_fifo():
                raise OSError(errno.ENXIO, "it is a pipe that nobody reads", name) from None
            raise
        if hasattr(os, "set_blocking"):
            os.set_blocking(handle, True)
        return handle

    return open(path, mode, opener=begin)


def _abandoned(pipe: int) -> bool:
    """Whether a pipe is empty, and there is nobody to fill it."""
    if select.select([pipe], [], [], 0)[0]:
        return False
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:  # somebody may still write
        return False


def data() -> Path:
    """Folder of what took time to make (datastores, searches), whether it exists or not."""
    from platformdirs import user_data_path

    return _chosen("SPEC_TUI_DATA_DIR") or user_data_path("spec-tui", appauthor=False)


def cache() -> Path:
    """Folder of what is measured again where it is missing, whether it exists or not."""
    from platformdirs import user_cache_path

    return _chosen("SPEC_TUI_CACHE_DIR") or user_cache_path("spec-tui", appauthor=False)


OTHER_CACHE = "SPEC_TUI_CACHE_DIR names another one"
"""What to do about ``cache_problem``."""


def cache_problem(error: OSError) -> str:
    """That the cache folder cannot be written, and why."""
    return f"the cache folder {cache()} cannot be written ({error.strerror or error})"


@functools.cache
def temporary_folder() -> TemporaryDirectory[str]:
    """A temporary folder for what only this process reads, made at the first call. A process that ends by
    ``os._exit`` calls ``remove_temporary_folder`` first. Raises OSError."""
    return TemporaryDirectory(prefix="spec-tui-", ignore_cleanup_errors=True)


def remove_temporary_folder() -> None:
    """Remove it, if it was made."""
    if temporary_folder.cache_info().currsize:
        temporary_folder().cleanup()
        temporary_folder.cache_clear()


HISTORY_SETTING = "SPEC_TUI_HISTORY"
"""The variable that, set to "off", turns off that anything is kept of what is asked and answered."""


def keeps_nothing() -> bool:
    """Whether that is turned off."""
    return os.environ.get(HISTORY_SETTING, "").strip().lower() in ("off", "0", "no", "false")


def _chosen(variable: str) -> Path | None:
    """The folder that a variable of the environment names. Raises UsageProblem where that can be none."""
    folder = os.environ.get(variable)
    try:
        return Path(folder).expanduser() if folder else None
    except RuntimeError:
        raise UsageProblem(f"{variable} names no folder: {folder[:80]}", "there is no such user: give a path") from None


def write_json(file: Path, value: Any) -> None:
    """Write a file whole or not at all, its folder too. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(value).encode())


def setting_file(name: str) -> Path:
    """A file of what was chosen last, whether it exists or not."""
    return data() / "settings" / name


def kept_setting(name: str) -> dict[str, Any]:
    """What such a file holds; empty where it is not there, or damaged."""
    try:
        found = json.loads(read_file(setting_file(name)))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def keep_setting(name: str, **values: Any) -> None:
    """Write such a file. What cannot be written is not kept."""
    with suppress(OSError):
        write_json(setting_file(name), values)


def free_bytes(folder: Path) -> int:
    """Bytes left on the disk of a folder, whether that exists or not."""
    return shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if os.path.exists(path))).free


def make_folder(folder: Path) -> None:
    """Make a folder, unless it is there. Raises UsageProblem: it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"the folder {folder} cannot be made: {error.strerror}", "name another") from None


def writable_folder() -> Path:
    """The current folder; where it cannot be written, that of the user's documents."""
    if os.access(here := Path.cwd(), os.W_OK):
        return here
    from platformdirs import user_documents_path

    return user_documents_path()


def unused(folder: Path, stem: str, ending: str = "") -> Path:
    """A path in a folder at which there is nothing: named by the time, and numbered where that is taken."""
    name = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (folder / f"{name}{f'-{number}' if number else ''}{ending}" for number in count())
    return next(path for path in paths if not os.path.exists(path))


def write_whole(file: Path, data: bytes, replace: bool = True) -> None:
    """Write a file whole or not at all; to a device or a pipe as it is. One that exists is replaced if ``replace``
    allows it. A process that is killed leaves ``.NAME.*``. Raises OSError: it cannot be written, the disk is full, or
    (FileExistsError) it exists."""
    if replace and os.path.exists(file) and not os.path.isfile(file):
        with open_output(file, "wb") as device:
            device.write(data)
        return
    try:
        file = file.resolve()  # where a link leads
    except RuntimeError:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(file)) from None
    if os.path.exists(file) and not replace:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))
    with written_beside(file) as beside:
        beside.write_bytes(data)


@contextmanager
def written_beside(file: Path) -> Iterator[Path]:
    """A path of this process alone to write to, which gets a file's place at the end, or is deleted where that is not
    reached. A process that is killed leaves ``.NAME.*``. Raises OSError: it cannot get its place."""
    beside = file.with_name(f".{file.name[:200]}.{os.getpid()}-{time.monotonic_ns()}")
    try:
        yield beside
        os.replace(beside, file)
    except BaseException:  # ctrl+c too
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def write_folder(folder: Path) -> Iterator[Path]:
    """A folder to write files to, which get their place in a new or empty ``folder`` at the end: all or, where that is
    not reached, none. A process that is killed leaves a folder ``.*``. Raises OSError: it cannot be written, or is not
    empty."""
    folder = folder.resolve()  # where a link leads
    there = os.path.isdir(folder)  # it may be somebody's current folder, or a mount: it stays the one that it is
    with TemporaryDirectory(prefix=".", dir=folder if there else folder.parent, ignore_cleanup_errors=True) as beside:
        (place := Path(beside) / "whole").mkdir()
        yield place
        if there and any(path != Path(beside) for path in folder.iterdir()):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(folder))
        for path in [*place.iterdir()] if there else ():
            os.replace(path, folder / path.name)
        if not there:
            os.replace(place, folder)


def lock(
    folder: Path, name: str, busy: Exception, unwritable: Callable[[OSError], Exception]
) -> AbstractContextManager[Any]:
    """Lock a name in a folder against other processes, until the end of a ``with``. Raises ``busy`` if one has locked
    it, and what ``unwritable`` makes of an OSError."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / f".{name}.lock", timeout=0).acquire()
    except Timeout:
        raise busy from None
    except OSError as error:
        raise unwritable(error) from None


@contextmanager
def waited_lock(file: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Within, no other process has this lock. While one has it, ``waiting`` is called four times a second, and may
    leave. Raises OSError."""
    from huggingface_hub.utils import WeakFileLock  # of filelock, also on disks that have no locks

    with ExitStack() as held:
        while True:
            try:
                held.enter_context(WeakFileLock(file, timeout=_TICK))
                break
            except TimeoutError:
                waiting()
        yield


def model_label(name: str) -> str:
    """A model's name for people: of a folder the last two parts, a hub's id as it is."""
    folder = PureWindowsPath(name) if "\\" in name else PurePath(name)
    return "/".join(folder.parts[-2:]) if folder.is_absolute() else name


def same_model(name: str, other: str) -> bool:
    """Whether these name one model; traces have the labels of folders, without this machine's paths."""
    return model_label(name) == model_label(other)


def _samples(kind: str) -> Path | None:
    """A folder of what ships, installed or in the repository."""
    places = (_HERE / "_samples" / kind, _HERE.parent / f"sample_{kind}")
    return next((folder for folder in places if os.path.isdir(folder)), None)


PAIR = ("target", "draft")


def sample_model(name: str) -> Path | None:
    """A shipped model: one of the ``PAIR`` or another draft model. Its folder, or its file where that is a GGUF; None
    where it is missing."""
    models = _samples("models")
    if models is None or os.path.isfile(models / name / "config.json"):
        return models and models / name
    return next((models / name).glob("*.gguf"), None)


def sample_models() -> tuple[str, ...]:
    """The shipped models: the ``PAIR``, whether it is there or not, and the draft models of others that are there."""
    models = _samples("models")
    others = sorted(file.parent.name for file in models.glob("*/*.gguf")) if models else ()
    return (*PAIR, *others)


def shipped(model: str) -> str:
    """Which of ``sample_models`` a name is (a folder, a file or a hub id); "" for any other."""
    for name in sample_models():
        place = sample_model(name)
        if place is not None and same_place(model, place):
            return name
    return ""


def same_place(name: str, place: Path) -> bool:
    """Whether a name that somebody gave leads to a file or folder; False for a name that leads nowhere."""
    try:
        return place.samefile(Path(name).expanduser()) if name else False
    except (OSError, ValueError, RuntimeError):  # nothing there; characters, a length or a user that can't be
        return False


def sample_datastores() -> Path | None:
    """Folder that holds the shipped datastores, None where there is none."""
    return _samples("datastores")


def sample_heads() -> Path | None:
    """Folder that holds the shipped draft heads, None where there is none."""
    return _samples("heads")


def sample_traces() -> Path | None:
    """Folder of the shipped traces, None where there is none."""
    return _samples("traces")


def document(name: str) -> Path | None:
    """A document that ships, in Markdown; None where it is not here."""
    places = (_HERE / "_samples" / "docs" / name, _HERE.parent / "docs" / name)
    return next((file for file in places if os.path.isfile(file)), None)
