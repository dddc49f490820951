"""What leaves the screen: an answer with its corrections marked, files."""

from __future__ import annotations

import os
import re
from datetime import datetime
from pathlib import Path

from engines.core.tree import children
from engines.report.run_state import RunState


def marked_text(run: RunState) -> str:
    """The answer in CriticMarkup: ``{~~rejected~>chosen~~}`` for a correction, ``{++x++}`` for a bonus."""
    out = []
    for index, token in enumerate(run.tokens):
        if token.kind == "corrected":
            out.append("{~~" + _rejected(run, index) + "~>" + token.text + "~~}")
        elif token.kind == "bonus" and token.text:
            out.append("{++" + token.text + "++}")
        else:
            out.append(token.text)
    return "".join(out)


def _rejected(run: RunState, index: int) -> str:
    """What the drafter would have written in place of a corrected token."""
    event = run.rounds[run.tokens[index].round]
    nodes = children(event.draft.parents).get(event.path[-1] if event.path else -1, [])
    if not nodes:
        return ""
    return event.draft.pieces[max(nodes, key=lambda n: (event.draft.probs[n] or 0.0, -n))]


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
