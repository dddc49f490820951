"""What is kept of former sessions in the user's data folder: conversations and races, each a folder of traces, which
``spec-tui replay`` opens, too. The environment variable ``SPEC_TUI_HISTORY=off`` keeps nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal

from engines import folders
from engines.errors import SpecError, UsageProblem
from engines.race.lanes import Race
from engines.race.race_events import LaneFinished, RaceFinished
from engines.report import encoding
from engines.report.events import Started
from engines.report.run_state import RunState, fold_all
from engines.report.traces import written
from engines.wire import from_json, read_trace
from spec_tui.present.narration import question
from spec_tui.present.text import one_line

Kind = Literal["conversations", "races"]

SETTING = folders.HISTORY_SETTING
_ABOUT = "entry.json"
_RACE = "race.json"
_BASELINE = "=baseline"  # follows the name of an answer
_MOST = 1 << 16  # bytes of ``entry.json`` that are read
_LONGEST = 16 << 20  # bytes of a trace's first line that are read


@dataclass(frozen=True, slots=True)
class RaceRecord:
    """What the traces of a race do not say.

    Attributes:
        asked: the race.
        ends: what was measured around its runs, in the order in which they ran; of a lane that failed, why.
        finished: how the race ended.
    """

    asked: Race
    ends: tuple[LaneFinished, ...]
    finished: RaceFinished


@dataclass(slots=True)
class Entry:
    """A conversation or a race that is kept.

    Attributes:
        folder: holds a trace a run, in the order of their names.
        title, about: what it is called; a line on it.
        changed: when it was last written, in seconds of ``time.time``.
        count: runs in it, without baselines of others.
        damaged: runs that ``runs`` could not read, or not in full. Where there are any, ``keep`` goes on in a folder
            of its own.
    """

    folder: Path
    title: str
    about: str = ""
    changed: float = 0.0
    count: int = 0
    damaged: int = 0
    _kept: dict[str, RunState] = field(default_factory=dict)

    def keep(self, runs: Mapping[str, RunState]) -> None:
        """Write these runs, each under its name (``[A-Za-z0-9=.-]``), and remove all others. A run that is there
        already is not written again. Where another window deleted the entry, all of it is written anew. Raises
        UsageProblem where the disk refuses; what was there before is as it was, or has more."""
        with _saving():
            self._heed_others()
            for name, run in runs.items():
                if self._kept.get(name) is not run:
                    folders.write_whole(self.folder / f"{name}.jsonl", written(run.events))
            for file in self._files():
                if file.stem not in runs:
                    file.unlink()
        self._kept = dict(runs)
        self.changed, self.count = time.time(), sum(not is_baseline(name) for name in runs)
        self._describe()

    def runs(self) -> dict[str, RunState]:
        """Its runs by name, without those that cannot be read. Raises UsageProblem where none can."""
        found, self.damaged = {}, 0
        for file in self._files():
            try:
                trace = read_trace(file)
            except UsageProblem:
                self.damaged += 1
                continue
            found[file.stem] = fold_all(trace.events)
            self.damaged += bool(trace.problems) or not trace.complete
        if not found:
            raise UsageProblem(f"nothing of {one_line(self.title, 40)!r} can be read", f"it lies in {self.folder}")
        self._kept = found
        return found

    def race(self) -> RaceRecord | None:
        """What was kept of a race beside its traces; None where that cannot be read, and of races of earlier versions.
        """
        try:
            record = encoding.decode(RaceRecord, folders.read_file(self.folder / _RACE))
            record.asked.check()
        except (OSError, ValueError, SpecError):
            return None
        return record if all(end.lane in range(len(record.asked.lanes)) for end in record.ends) else None

    def questions(self, most: int) -> list[str]:
        """What was asked in the first runs, as far as that can be read."""
        found = []
        for file in [file for file in self._files() if not is_baseline(file.stem)][:most]:
            try:
                with folders.open_file(file) as lines:
                    started = from_json(lines.readline(_LONGEST))
            except (OSError, ValueError):
                continue
            if isinstance(started, Started):
                found.append(question(started))
        return found

    def rename(self, title: str) -> None:
        """Another title. Raises UsageProblem where the disk refuses, or another window deleted it."""
        if not os.path.isdir(self.folder):
            raise UsageProblem(f"{one_line(self.title, 40)!r} was deleted in another window", "close the list")
        stands = _read(self.folder)
        self.title, self.changed, self.count = title.strip() or self.title, stands.changed, stands.count
        self._describe()

    def delete(self) -> None:
        """Remove it from the disk. Raises UsageProblem where the disk refuses."""
        try:
            shutil.rmtree(self.folder)
        except FileNotFoundError:  # another window has deleted it
            return
        except OSError as error:
            raise UsageProblem(f"it cannot be deleted: {error.strerror}", f"it lies in {self.folder}") from None

    def _heed_others(self) -> None:
        """Take the title that another window gave it; where another one went on with it, or deleted it, or where a
        run of it is damaged, go on in a folder of its own. Raises OSError."""
        if not os.path.isdir(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            self.folder, self._kept = _new_folder(self.folder.parent), {}
        elif self._kept:
            stands = _read(self.folder)
            self.title = stands.title
            if self.damaged or stands.changed != self.changed:  # earlier, too: a clock may be set back
                self.folder, self._kept, self.damaged = _new_folder(self.folder.parent), {}, 0

    def _files(self) -> list[Path]:
        return [file for file in folders.listed(self.folder, "*.jsonl") if os.path.isfile(file)]

    def _describe(self) -> None:
        words = {"title": self.title, "about": self.about, "changed": self.changed, "count": self.count}
        with _saving():
            folders.write_whole(self.folder / _ABOUT, json.dumps(words).encode())


class History:
    """All entries below a folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def of_user(cls) -> History | None:
        """The user's; None where it is turned off."""
        return None if folders.keeps_nothing() else cls(folders.data() / "history")

    def entries(self, kind: Kind) -> list[Entry]:
        """What is kept of this kind, the latest first."""
        found = []
        for path in folders.listed(self.folder / kind):
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            with suppress(OSError):  # deleted meanwhile
                found.append(_read(path))
        return sorted(found, key=lambda entry: -entry.changed)

    def begin(self, kind: Kind, title: str, about: str = "", runs: Mapping[str, RunState] | None = None,
              race: RaceRecord | None = None) -> Entry:
        """A new entry with these runs, of a race with its record. Raises UsageProblem where the disk refuses."""
        with _saving():
            (self.folder / kind).mkdir(parents=True, exist_ok=True)
            folder = _new_folder(self.folder / kind)
        entry = Entry(folder, title.strip() or "untitled", about)
        try:
            if race is not None:
                with _saving():
                    folders.write_whole(folder / _RACE, encoding.encode(race))
            entry.keep(runs or {})
        except UsageProblem:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return entry


def numbered(
    runs: Iterable[RunState], baseline: Callable[[RunState], RunState | None] = lambda run: None
) -> dict[str, RunState]:
    """Runs under names that keep their order, each with the other run that is its ``baseline``."""
    found = {}
    for number, run in enumerate(runs, 1):
        found[f"{number:04d}"] = run
        if (plain := baseline(run)) is not None and plain is not run:
            found[f"{number:04d}{_BASELINE}"] = plain
    return found


def is_baseline(name: str) -> bool:
    """Whether ``numbered`` gave this name to a baseline."""
    return name.endswith(_BASELINE)


@contextmanager
def _saving() -> Iterator[None]:
    """Raises UsageProblem where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise UsageProblem(f"this cannot be saved: {error.strerror}", "SPEC_TUI_HISTORY=off keeps nothing") from None


def _new_folder(parent: Path) -> Path:
    """A folder that only this user can read, named by the time. Raises OSError."""
    return Path(mkdtemp(prefix=time.strftime("%Y-%m-%dT%H-%M-%S-"), dir=parent))


def _read(folder: Path) -> Entry:
    """The entry in a folder, as far as its description can be read. Raises OSError: there is no folder."""
    entry = Entry(folder, folder.name, changed=folder.stat().st_mtime)
    try:
        with folders.open_file(folder / _ABOUT) as file:
            words = json.loads(file.read(_MOST))
        entry.title, entry.about = str(words["title"]), str(words["about"])
        entry.changed, entry.count = float(words["changed"]), int(words["count"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    return entry
