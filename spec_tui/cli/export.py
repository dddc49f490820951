"""``spec-tui export``: a recorded run as a document. No model is loaded."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from engines.errors import RunFailed, UsageProblem
from engines.folders import check_folder, room_or, typed_file, write_whole
from engines.report.traces import Trace
from engines.report.wording import joined
from spec_tui.cli.failures import narrate
from spec_tui.cli.option_groups import Only, Rejected, complete_trace
from spec_tui.cli.replay import check_speed, runs_in
from spec_tui.export.formats import FORMATS as DOCUMENTS
from spec_tui.export.formats import ExportFormat, ExportOptions
from spec_tui.session.sample_traces import trace_path


def _picture(trace: Trace, name: str, options: ExportOptions) -> str:
    from spec_tui.tui.picture import picture

    return picture(trace, name, options.size or (120, 40), options.theme, options.rejected)


FORMATS = DOCUMENTS | {"svg": ExportFormat("picture of the application's screen at the end", _picture)}

_TRACE = "A trace (spec-tui run --trace writes one), or the name of one that ships."
_TO = "; ".join(f"{name}: {form.words}" for name, form in FORMATS.items()) + ". Default: the ending of --output."
_OUTPUT = "File to write; - is standard output. Default: named after the trace, in the current folder."
_SIZE = "Size of the screen (svg; default 120x40) or of the terminal (cast; default 80x24)."
_LARGEST = 1000
_ELSEWHERE = "name another file with --output"


def _to(*names: str) -> Only:
    """What a flag is for: documents of these forms."""
    return Only(lambda given: _form(given["to"], given["output"]) in (*names, ""), joined(names))


def export(
    trace: Annotated[str, Argument(metavar="FILE|NAME", help=_TRACE, autocompletion=complete_trace)],
    to: Annotated[Literal[*FORMATS] | None, Option(help=_TO)] = None,
    output: Annotated[str | None, Option("--output", "-o", metavar="FILE|-", help=_OUTPUT)] = None,
    force: Annotated[bool, Option("--force", help="Overwrite the file if it exists.")] = False,
    size: Annotated[str | None, Option(metavar="COLSxROWS", help=_SIZE), _to("svg", "cast")] = None,
    theme: Annotated[str | None, Option(metavar="NAME", help="Colour theme of the picture."), _to("svg")] = None,
    speed: Annotated[float, Option(metavar="X", help="Speed of a cast; 1 is the speed of the run."), _to("cast")] = 1.0,
    rejected: Annotated[Rejected, _to("svg", "cast", "html")] = False,
) -> int:
    """Write a recorded run as a document. No model is loaded; a file is overwritten only with --force."""
    name = _form(to, output)
    if name not in FORMATS:
        raise UsageProblem("say which format to export to", "--to " + "|".join(FORMATS))
    check_speed(speed)
    path = trace_path(trace)
    target = output_file(output or f"{path.stem}.{name}", force)
    options = ExportOptions(_size(size), theme, speed, rejected)
    write_document(target, FORMATS[name].make(runs_in(path, tell=True), path.stem, options), force)
    return 0


def _form(to: str | None, output: str | None) -> str:
    """Which form is written; "" where nothing says so."""
    return to or (Path(output).suffix[1:].lower() if output else "")


def _size(size: str | None) -> tuple[int, int] | None:
    if size is None:
        return None
    if not (found := re.fullmatch(r"(\d{1,9})x(\d{1,9})", size)):
        raise UsageProblem(f"--size {size} is not COLSxROWS", "for example --size 120x40")
    width, height = map(int, found.groups())
    if not (20 <= width <= _LARGEST and 5 <= height <= _LARGEST):
        raise UsageProblem(f"the size {size} is out of range", f"20x5 to {_LARGEST}x{_LARGEST}")
    return width, height


def output_file(output: str, force: bool) -> Path | None:
    """Where ``--output`` leads; None for standard output. Raises UsageProblem where something is in the way, or there
    is no folder."""
    if output == "-":
        return None
    path = typed_file(output)
    check_folder(path, _ELSEWHERE)
    if os.path.exists(path) and not force:
        raise UsageProblem(f"{path} exists", f"{_ELSEWHERE}, or give --force")
    return path


def write_document(
    path: Path | None, text: str, force: bool, otherwise: str = _ELSEWHERE
) -> None:
    """Write a document to a file, or to standard output. Raises RunFailed where that cannot be written; ``otherwise``
    is what helps then, besides making room on a full disk."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        sys.stdout.write(text)
        return
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"), replace=force)
    except OSError as error:
        raise RunFailed(f"{path} cannot be written: {error.strerror}", room_or(error, otherwise)) from None
    narrate(f"wrote {path}")
