"""Files that are saved from a screen."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path


def offline(svg: str) -> str:
    """The picture without links to fonts or sites: it shows the same with no network, and tells nobody."""
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


def save_svg(svg: str, folder: Path | None = None) -> Path:
    """Write a picture where there is none yet. Returns its path."""
    return save(offline(svg).encode(), "svg", folder)


def save(data: bytes, ending: str, folder: Path | None = None) -> Path:
    """Write a file where there is none yet: in the current folder, else the documents folder. Returns its path.

    Raises:
        OSError: it cannot be written.
    """
    folder = folder or Path.cwd()
    if not os.access(folder, os.W_OK):
        from platformdirs import user_documents_path

        folder = user_documents_path()
        folder.mkdir(parents=True, exist_ok=True)
    name = f"spec-tui-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1000):
        path = folder / (f"{name}.{ending}" if not number else f"{name}-{number}.{ending}")
        try:
            with path.open("xb") as file:
                file.write(data)
            return path
        except FileExistsError:
            continue
    raise FileExistsError(f"too many files named {name}")
