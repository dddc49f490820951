"""Traces by name: those that ship, beside files of the user's own."""

from __future__ import annotations

import os
from pathlib import Path

from engines.errors import UsageProblem
from engines.folders import sample_traces, typed_file


def names() -> tuple[str, ...]:
    """Names of the shipped traces, in order."""
    folder = sample_traces()
    return tuple(sorted(path.stem for path in folder.glob("*.jsonl"))) if folder else ()


def trace_path(name: str) -> Path:
    """The file of this path, or the shipped trace of this name. Raises UsageProblem where there is neither."""
    path, shipped = typed_file(name), names()
    if os.path.exists(path) or name not in shipped:
        if not os.path.exists(path) and path.name == name and not path.suffix:
            raise UsageProblem(f"there is no trace {name!r}", "those that ship are: " + ", ".join(shipped))
        return path
    return sample_traces() / f"{name}.jsonl"
