"""Which traces ``spec-tui replay --screen race`` shows: files, names, or a folder of ``compare --trace-dir``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from engines.errors import UsageProblem
from engines.wire import read_trace
from spec_tui.session.recorded_race import MOST, RecordedRace, RecordedRun
from spec_tui.session.sample_traces import trace_path

_RUN = re.compile(r"\d+-.+\.repeat-(\d+)\.prompt-(\d+)")  # as racing.Traces names them
_NAMED = "name the files: spec-tui replay FILE FILE --screen race"


def recorded(named: Sequence[str]) -> RecordedRace:
    """The runs of these files, names and folders, side by side. Raises UsageProblem."""
    return RecordedRace([source for name in named for source in _sources(name)])


def _sources(name: str) -> Iterator[RecordedRun]:
    path = trace_path(name)
    paths, note = _of_folder(path) if path.is_dir() else ([path], "")
    for each in paths:
        trace = read_trace(each)
        if not trace.runs:
            raise UsageProblem(f"{each} holds no run", "traces are written by spec-tui run --trace FILE")
        yield RecordedRun(each.stem, trace, note if each == paths[0] else "")


def _of_folder(folder: Path) -> tuple[list[Path], str]:
    """Its traces: of what ``compare`` wrote the first repeat of the first prompt; and what that leaves out."""
    found = sorted(folder.glob("*.jsonl"))
    numbered = {path: match.groups() for path in found if (match := _RUN.fullmatch(path.stem))}
    first = [path for path in found if numbered.get(path, ("1", "1")) == ("1", "1")]
    if not first:
        what = "no trace of a first repeat and prompt" if found else "no trace (*.jsonl)"
        raise UsageProblem(f"the folder {folder} holds {what}", _NAMED)
    if len(first) > MOST:
        raise UsageProblem(f"the folder {folder} holds {len(first)} lanes, and there is room for {MOST}", _NAMED)
    rest = len(found) - len(first)
    note = f"of this folder each lane's first repeat of the first prompt; {rest} more traces are in it" if rest else ""
    return first, note
