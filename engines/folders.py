"""Where things lie: what ships with the program, what the user built or searched, what can be measured again."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path, PurePath, PureWindowsPath
from typing import Any

_HERE = Path(__file__).resolve().parent


def data() -> Path:
    """Folder of what took time to make (datastores, searches), whether it exists or not."""
    from platformdirs import user_data_path

    folder = os.environ.get("SPEC_TUI_DATA_DIR")
    return Path(folder).expanduser() if folder else user_data_path("spec-tui", appauthor=False)


def cache() -> Path:
    """Folder of what is measured again where it is missing, whether it exists or not."""
    from platformdirs import user_cache_path

    folder = os.environ.get("SPEC_TUI_CACHE_DIR")
    return Path(folder).expanduser() if folder else user_cache_path("spec-tui", appauthor=False)


def write_json(file: Path, value: Any) -> None:
    """Write a file whole or not at all, its folder too. Raises OSError."""
    name = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent)
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


def sample_model(name: str) -> Path | None:
    """Folder of a shipped model ("target" or "draft"), None where it is missing."""
    for folder in (_HERE / "_samples" / "models" / name, _HERE.parent / "sample_models" / name):
        if (folder / "config.json").is_file():
            return folder
    return None


def shipped(model: str) -> str:
    """Which of the models that ship a name (a folder or a hub id) is: "target", "draft", or "" for any other."""
    for name in ("target", "draft"):
        folder = sample_model(name)
        if model and folder is not None and Path(model).resolve() == folder.resolve():
            return name
    return ""


def sample_datastores() -> Path | None:
    """Folder that holds the shipped datastores, None where there is none."""
    for folder in (_HERE / "_samples" / "datastores", _HERE.parent / "sample_datastores"):
        if folder.is_dir():
            return folder
    return None


def sample_traces() -> Path | None:
    """Folder of the shipped traces, None where there is none."""
    for folder in (_HERE / "_samples" / "traces", _HERE.parent / "sample_traces"):
        if folder.is_dir():
            return folder
    return None
