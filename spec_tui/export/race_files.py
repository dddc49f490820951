"""A race as files: what ``compare --format`` writes, and a trace of every complete run."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from spec_tui.session.race_state import RaceState

_FORMATS = ("json", "md", "csv")


def export(bout: RaceState, parent: Path | None = None) -> Path:
    """Write a folder of its own into ``parent`` (the current folder, else the documents folder). Returns its path.

    Raises:
        OSError: it cannot be written.
        SpecError: the disk is full in the middle of a trace.
    """
    # What the command line writes; imported here, as it brings the command line with it.
    from spec_tui.cli.race_output import WRITERS
    from spec_tui.cli.racing import Traces

    folder = _folder(parent)
    for name in _FORMATS:
        text = WRITERS[name](bout.result, bout.asked)
        (folder / f"race.{name}").write_text(text + "\n", encoding="utf-8")
    Traces(folder / "traces", bout.asked).write(bout.result)
    return folder


def _folder(parent: Path | None) -> Path:
    """A new folder."""
    parent = parent or Path.cwd()
    if not os.access(parent, os.W_OK):
        from platformdirs import user_documents_path

        parent = user_documents_path()
    name = f"spec-tui-race-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1000):
        folder = parent / (f"{name}-{number}" if number else name)
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
    raise FileExistsError(f"too many folders named {name}")
