"""Traces: a run's events, one JSON object a line, as they happened. An interrupted run leaves a readable
prefix."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from engines.errors import RunFailed, UsageProblem
from engines.events import SCHEMA, Audited, Event, Failed, Finished, Started, from_json, to_json

_LONGEST_LINE = 64 << 20  # bytes; a round with a tree of 256 nodes is some tens of kilobytes
_MOST_PROBLEMS = 20
_LAST = Finished | Failed | Audited


def encode(event: Event) -> bytes:
    """One line of UTF-8; lone surrogates, which UTF-8 cannot hold, as JSON escapes."""
    return to_json(event).encode("utf-8", "backslashreplace") + b"\n"


class TraceWriter:
    """Writes a trace line by line. The file is checked at once and opened with the first event, so that a run
    that never starts leaves an older trace as it was. An existing file is overwritten if it is a trace (or
    empty).

    Raises:
        UsageProblem: the path cannot be written, or holds something that is not a trace.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        _check_target(path)

    def write(self, event: Event) -> None:
        """Append one event. Raises RunFailed where the disk is full or gone."""
        try:
            if self._file is None:
                self._file = open(self._path, "wb")  # noqa: SIM115 (closed by close)
            self._file.write(encode(event))
            self._file.flush()
        except OSError as error:
            raise RunFailed(f"the trace cannot be written to {self._path}: {error.strerror}") from None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _check_target(path: Path) -> None:
    elsewhere = "name another file with --trace"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise UsageProblem(f"there is no folder {path.parent} to write the trace to", elsewhere) from None
        if not os.access(path.parent, os.W_OK):
            raise UsageProblem(f"the folder {path.parent} cannot be written", elsewhere) from None
        return
    except OSError as error:
        raise UsageProblem(f"the trace cannot be written to {path}: {error.strerror}", elsewhere) from None
    if stat.S_ISDIR(mode):
        raise UsageProblem(f"{path} is a folder, not a file for a trace", elsewhere)
    if not os.access(path, os.W_OK):
        raise UsageProblem(f"{path} cannot be written", elsewhere)
    if stat.S_ISREG(mode) and not _is_trace_or_empty(path):
        raise UsageProblem(f"{path} exists and is not a trace, so it is not overwritten", elsewhere)


def _is_trace_or_empty(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            first = file.readline(_LONGEST_LINE)
    except OSError:
        return False
    return not first or isinstance(_decode(first), Started | Failed)


@dataclass(frozen=True, slots=True)
class Trace:
    """What could be read of a trace.

    Attributes:
        events: the readable events, in order.
        problems: sentences about what could not be read, for the user.
        complete: it ends as a run ends.
    """

    events: tuple[Event, ...]
    problems: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], _LAST)


def read_trace(path: Path) -> Trace:
    """Read what is readable; damaged lines are left out and named in ``problems``.

    Raises:
        UsageProblem: there is no such file, it cannot be opened, or nothing in it is an event.
    """
    events: list[Event] = []
    problems: list[str] = []
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                found = _decode(line)
                if isinstance(found, str):
                    cut = "cut off: " if not line.endswith(b"\n") else ""
                    problems.append(f"line {number} is {cut}{found}")
                elif found is not None:
                    events.append(found)
    except OSError as error:
        raise UsageProblem(f"the trace {path} cannot be read: {error.strerror}", "check the path") from None
    if not events:
        raise UsageProblem(f"{path} is not a trace", "traces are written by spec-tui run --trace FILE")
    return Trace(tuple(events), tuple(_shorten(problems + _inconsistencies(events))))


def _decode(line: bytes) -> Event | str | None:
    """The event of a line, None for a blank line, or what is wrong with it."""
    if not line.strip():
        return None
    try:
        return from_json(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "not text"
    except (ValueError, TypeError, RecursionError) as error:
        return f"not an event of this version ({error})"


def _inconsistencies(events: list[Event]) -> list[str]:
    found = []
    starts = [event for event in events if isinstance(event, Started)]
    if not starts:
        found.append("the start of the run is missing")
    if any(start.schema > SCHEMA for start in starts):
        found.append("written by a newer version of this program: some of it may be missing here")
    if not isinstance(events[-1], _LAST):
        found.append("the end of the run is missing")
    return found


def _shorten(problems: list[str]) -> list[str]:
    more = len(problems) - _MOST_PROBLEMS
    return problems if more <= 1 else [*problems[:_MOST_PROBLEMS], f"and {more} more problems"]
