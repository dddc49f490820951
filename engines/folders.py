"""Where things lie: what ships with the program, what the user built or searched, what can be measured again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

from engines.errors import UsageProblem

_HERE = Path(__file__).resolve().parent


def data() -> Path:
    """Folder of what took time to make (datastores, searches), whether it exists or not."""
    from platformdirs import user_data_path

    return _chosen("SPEC_TUI_DATA_DIR") or user_data_path("spec-tui", appauthor=False)


def cache() -> Path:
    """Folder of what is measured again where it is missing, whether it exists or not."""
    from platformdirs import user_cache_path

    return _chosen("SPEC_TUI_CACHE_DIR") or user_cache_path("spec-tui", appauthor=False)


def _chosen(variable: str) -> Path | None:
    """The folder that a variable of the environment names. Raises UsageProblem where that can be none."""
    folder = os.environ.get(variable)
    try:
        return Path(folder).expanduser() if folder else None
    except RuntimeError:
        raise UsageProblem(f"{variable} names no folder: {folder[:80]}", "there is no such user: give a path") from None


def write_json(file: Path, value: Any) -> None:
    """Write a file whole or not at all, its folder too; a process that is killed leaves ``.NAME.*``. Raises OSError."""
    name = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            json.dump(value, stream)
        os.replace(name, file)
    except BaseException:  # ctrl+c too
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise


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


def model_label(name: str) -> str:
    """A model's name for people: of a folder the last two parts, a hub's id as it is."""
    folder = PureWindowsPath(name) if "\\" in name else PurePath(name)
    return "/".join(folder.parts[-2:]) if folder.is_absolute() else name


def _samples(kind: str) -> Path | None:
    """A folder of what ships, installed or in the repository."""
    places = (_HERE / "_samples" / kind, _HERE.parent / f"sample_{kind}")
    return next((folder for folder in places if folder.is_dir()), None)


def sample_model(name: str) -> Path | None:
    """Folder of a shipped model ("target" or "draft"), None where it is missing."""
    models = _samples("models")
    return models / name if models and (models / name / "config.json").is_file() else None


def shipped(model: str) -> str:
    """Which of the models that ship a name (a folder or a hub id) is: "target", "draft", or "" for any other."""
    for name in ("target", "draft"):
        folder = sample_model(name)
        if model and folder is not None and Path(model).resolve() == folder.resolve():
            return name
    return ""


def sample_datastores() -> Path | None:
    """Folder that holds the shipped datastores, None where there is none."""
    return _samples("datastores")


def sample_traces() -> Path | None:
    """Folder of the shipped traces, None where there is none."""
    return _samples("traces")
