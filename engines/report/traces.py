"""Traces: a run's events, one JSON object a line, as they happened, and a checksum of them. An interrupted run leaves a
readable prefix without one. Several traces in one file (``cat``) are a trace too.

What a file says is believed only where a fold can rely on it (``trace_validation``).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO

from engines.errors import RunFailed, UsageProblem
from engines.folders import check_folder, model_label, open_input, open_output, room_or
from engines.report.encoding import from_json, to_json, union_classes
from engines.report.events import SCHEMA, Audited, Failed, Finished, Prefilled, Round, RunEvent, Started
from engines.report.trace_validation import OptionCheck, TraceValidator, no_check

_LONGEST_LINE = 64 << 20  # bytes; a round with a tree of 256 nodes is some tens of kilobytes
_MOST_PROBLEMS = 20
_ELSEWHERE = "name another file with --trace"
_LAST = Finished | Failed | Audited
_CLASSES = union_classes(RunEvent)
_SEAL = b'{"event":"Sealed",'


def trace_line(event: RunEvent) -> bytes:
    """One line of a trace, with its end."""
    return to_json(event) + b"\n"


def written(events: Iterable[RunEvent]) -> bytes:
    """A trace of these, as ``TraceWriter`` writes it."""
    seal = _Seal()
    return b"".join([*map(seal.event, events), seal.end()])


class TraceWriter:
    """Writes a trace line by line; when it is closed after the end of a run, it adds the checksum. The path is checked
    at once, but the file is opened with the first event: a run that never starts leaves an older trace as it was.
    A pipe is opened at once. An existing file is overwritten if it is a trace (or empty).

    Folders of models are named by their last two parts, since a trace may be given to other people.

    Raises:
        UsageProblem: the path cannot be written, holds something that is not a trace, or is a pipe that nobody reads.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path = Path(path)
        self._file: IO[bytes] | None = None
        self._seal = _Seal()
        _check_target(path)
        if path.is_fifo():  # only opening it tells whether somebody reads it, and closing it again would end that
            try:
                self._file = open_output(path, "wb")
            except OSError as error:
                raise _unwritable(path, error) from None

    def write(self, event: RunEvent) -> None:
        """Append one event; it is the last where this raises RunFailed, as the disk is full or gone."""
        self._append(self._seal.event(event))

    def close(self) -> None:
        if self._file is not None and not self._file.closed:
            if end := self._seal.end():
                self._append(end)
            self._file.close()

    def _append(self, line: bytes) -> None:
        try:
            if self._file is None:
                self._file = open_output(self._path, "wb")
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            self._give_up()
            raise RunFailed(f"the trace cannot be written to {self._path}: {error.strerror}",
                            room_or(error, "name another file")) from None

    def _give_up(self) -> None:
        """Close the file, which would be tried again at the end; one with nothing in it is no trace, and removed."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                if os.path.isfile(self._path) and not self._path.stat().st_size:
                    self._path.unlink()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Seal:
    """The checksum of the lines since the last checksum: SHA-256, with ``\\n`` as line end whatever the file has."""

    def __init__(self) -> None:
        self._sum, self.lines, self._ended = hashlib.sha256(), 0, False

    def add(self, line: bytes) -> None:
        self._sum.update(line.rstrip(b"\r\n") + b"\n")
        self.lines += 1

    def event(self, event: RunEvent) -> bytes:
        """The line of an event, which is added."""
        self.add(line := trace_line(_portable(event)))
        self._ended = isinstance(event, _LAST)
        return line

    def end(self) -> bytes:
        """The line that holds the checksum, after the end of a run; nothing before it."""
        line = f'"lines":{self.lines},"sha256":"{self._sum.hexdigest()}"}}\n'
        return _SEAL + line.encode() if self._ended else b""

    def differs(self, line: bytes) -> str:
        """What is wrong according to a checksum line that was read; "" if nothing."""
        try:
            said = json.loads(line)
            lines, checksum = said["lines"], said["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return "the checksum cannot be read"
        if (checksum, lines) == (self._sum.hexdigest(), self.lines):
            return ""
        many = "" if lines == self.lines else f": it should have {lines} lines, and has {self.lines}"
        return f"the checksum does not match, so the file was damaged or changed{many}"


def _portable(event: RunEvent) -> RunEvent:
    """A start without this machine's folders."""
    if not isinstance(event, Started):
        return event
    draft, head = (name and model_label(name) for name in (event.draft_model, event.head))
    return replace(event, model=model_label(event.model), draft_model=draft, head=head)


def _unwritable(path: Path, error: OSError) -> UsageProblem:
    return UsageProblem(f"the trace cannot be written to {path}: {error.strerror}", _ELSEWHERE)


def _check_target(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        check_folder(path, _ELSEWHERE)
        if not os.access(path.parent, os.W_OK):
            raise UsageProblem(f"the folder {path.parent} cannot be written", _ELSEWHERE) from None
        return
    except OSError as error:
        raise _unwritable(path, error) from None
    if stat.S_ISDIR(mode):
        raise UsageProblem(f"{path} is a folder, not a file for a trace", _ELSEWHERE)
    if not os.access(path, os.W_OK):
        raise UsageProblem(f"{path} cannot be written", _ELSEWHERE)
    if stat.S_ISREG(mode) and not _is_trace_or_empty(path):
        raise UsageProblem(f"{path} exists and is not a trace, so it is not overwritten", _ELSEWHERE)


def _is_trace_or_empty(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            first = _next_line(file)
    except OSError:
        return False
    return not first or isinstance(_decode(first, TraceValidator())[0], Started | Failed)


@dataclass(frozen=True, slots=True)
class Trace:
    """What could be read of a trace.

    Attributes:
        events: the readable events, in order.
        problems: sentences about what could not be read, for the user.
    """

    events: tuple[RunEvent, ...]
    problems: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], _LAST)

    @property
    def runs(self) -> tuple[tuple[RunEvent, ...], ...]:
        """The events of each run. A run whose start is missing gets one that says so."""
        runs: list[list[RunEvent]] = []
        for event in self.events:
            if isinstance(event, Started):
                runs.append([event])
            elif isinstance(event, IN_RUN):
                if not runs:
                    runs.append([UNKNOWN])
                runs[-1].append(event)
        return tuple(map(tuple, runs))


IN_RUN = Prefilled | Round | Finished | Failed | Audited
UNKNOWN = Started(
    engine="unknown", options={}, law="unknown", temperature=0.0, top_p=1.0, top_k=0, seed=0, max_new_tokens=0,
    model="unknown", dtype="unknown", device="unknown", prompt=(),
)
"""Stands for a start that cannot be read."""


def parse_trace(path: Path, wrong_options: OptionCheck = no_check) -> Trace:
    """Read what is readable; damaged lines are left out and named in ``problems``.

    ``engines.wire.read_trace`` calls this with a check that knows the options of the methods. Raises UsageProblem:
    there is no such file, it cannot be opened, or nothing in it is an event."""
    try:
        with open_input(path) as file:
            trace = _read(iter(lambda: _next_line(file), b""), wrong_options)
    except IsADirectoryError:
        raise UsageProblem(f"{path} is a folder, not a trace", "name a trace in it") from None
    except OSError as error:
        raise UsageProblem(f"the trace {path} cannot be read: {error.strerror}", "check the path") from None
    if not trace.events:
        found = f"{trace.problems[0]}; " if len(trace.problems) > 1 else ""
        raise UsageProblem(f"{path} is not a trace", f"{found}traces are written by spec-tui run --trace FILE")
    return trace


def _next_line(file: IO[bytes]) -> bytes:
    """A line, without the byte order mark that an editor may have put before the first one; nothing at the end."""
    return file.readline(_LONGEST_LINE).removeprefix(BOM_UTF8)


def _read(lines: Iterable[bytes], wrong_options: OptionCheck) -> Trace:
    events: list[RunEvent] = []
    problems: list[str] = []
    validator, seal = TraceValidator(wrong_options), _Seal()
    for number, line in enumerate(lines, 1):
        if b'"Sealed"' in line[:32]:
            wrong, seal = seal.differs(line), _Seal()
            problems += [wrong] if wrong else []
            continue
        seal.add(line)
        event, wrong = _decode(line, validator)
        if wrong:
            torn = event is None and not line.endswith(b"\n")
            problems.append(f"line {number} {'is cut off' if torn else wrong}")
        if event is not None:
            events.append(event)
    return Trace(tuple(events), (*_shorten(problems), *_inconsistencies(events, seal.lines)))


def _decode(line: bytes, validator: TraceValidator) -> tuple[RunEvent | None, str]:
    """The event of a line, None for a blank line or a damaged one; and what is wrong with it."""
    if not line.strip():
        return None, ""
    try:
        event = from_json(line, _CLASSES)
        return validator.judge(event)
    except UnicodeDecodeError:
        return None, "is not text"
    except ValueError as error:
        return None, f"is not an event of this version ({error})"


def _inconsistencies(events: list[RunEvent], unsealed: int) -> list[str]:
    """What is wrong with the whole; ``unsealed`` lines have no checksum after them."""
    found = []
    starts = [event for event in events if isinstance(event, Started)]
    if events and not isinstance(events[0], Started):
        found.append("the start of the run is missing: what was asked, and of which model, is not known")
    if any(start.schema > SCHEMA for start in starts):
        found.append("written by a newer version of this program: some of it may be missing here")
    if not events or not isinstance(events[-1], _LAST):
        found.append("the end of the run is missing: it was cut off, or is still being written")
    elif unsealed:
        found.append("there is no checksum, so the trace may be incomplete or changed")
    return found


def _shorten(problems: list[str]) -> list[str]:
    more = len(problems) - _MOST_PROBLEMS
    return problems if more <= 1 else [*problems[:_MOST_PROBLEMS], f"and {more} more problems"]
