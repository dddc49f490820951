"""Log files: where the details go that must not land on the screen. No prompts or answers are written here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO

_LIMIT = 1_000_000


def log_path(name: str) -> Path:
    """Where the log ``name`` lies, whether it exists or not."""
    from platformdirs import user_log_path

    return user_log_path("spec-tui", appauthor=False) / f"{name}.log"


def open_log(name: str) -> IO[bytes] | None:
    """The log opened for appending, begun anew when it has grown large; None where it cannot be written."""
    path = log_path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        full = os.path.exists(path) and path.stat().st_size > _LIMIT
        return open(path, "wb" if full else "ab")
    except OSError:
        return None
