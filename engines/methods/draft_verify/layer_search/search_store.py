"""Layer searches on disk: one JSON file for each model and machine, complete after every trial."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import platform
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from engines import folders
from engines.errors import UsageProblem
from engines.libraries.hf import text_config
from engines.machine import processor
from engines.model.skipped_layers import SkippedLayers
from engines.report import encoding

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

FORMAT = 1
_LARGEST = 64 << 20  # bytes of a file that are read
_ID = re.compile(r"[0-9a-f]{12}")
_BUSY = 0.8  # of the usual speed: below it, the machine was busy


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the speed of a draft depends on. It has no host name, because that may change."""

    system: str
    processor: str
    cpus: int
    device: str


@dataclass(frozen=True, slots=True)
class Identity:
    """The model and the machine that a set of sublayers was searched for.

    Attributes:
        fingerprint: of the weights (``engines.model.loading.weights_fingerprint``).
        layers: how many the model has.
    """

    fingerprint: str
    dtype: str
    layers: int
    machine: Machine

    @property
    def id(self) -> str:
        """12 hexadecimal digits, the name of the search."""
        return hashlib.sha256(json.dumps(encoding.plain(self), sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """What all trials of a search share: number of prompts, their digest, tokens of each answer, seed."""

    prompts: int
    digest: str
    tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """The measurement of one set of sublayers.

    Attributes:
        skipped: the set, as ``SkippedLayers`` writes it.
        speed_up: ``tokens_per_second`` / ``baseline``.
        tokens_per_second, baseline: of self-speculation and of autoregressive decoding, measured in turns.
        acceptance: accepted / drafted; None if nothing was drafted.
        low, high: the extremes of several repeats, whose median ``speed_up`` then is; None for one measurement.
    """

    skipped: str
    speed_up: float
    tokens_per_second: float
    baseline: float
    acceptance: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        for value in (self.speed_up, self.tokens_per_second, self.baseline):
            if not (math.isfinite(value) and value > 0):
                raise ValueError("a speed is not a positive number")


@dataclass(frozen=True, slots=True)
class Search:
    """A search, finished or not.

    Attributes:
        model: its name, for people.
        trials: in the order they were made.
        found: the best of them, measured again; None until that is done.
    """

    model: str
    identity: Identity
    settings: SearchSettings
    trials: tuple[SearchTrial, ...] = ()
    found: SearchTrial | None = None
    format: int = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT or self.identity.layers < 1:
            raise ValueError("written by another version of this program")
        for trial in (*self.trials, *([self.found] if self.found else [])):
            if not SkippedLayers.parse(trial.skipped, self.identity.layers):
                raise ValueError("a trial without sublayers")

    @property
    def best(self) -> SearchTrial | None:
        """``found``, or before that the trial that looks best; None without trials."""
        return self.found or max(self.trials, key=lambda trial: trial.speed_up, default=None)

    @property
    def busy_trials(self) -> int:
        """How many trials found autoregressive decoding a fifth slower than usual, because the machine was busy."""
        if not self.trials:
            return 0
        usual = median(trial.baseline for trial in self.trials)
        return sum(trial.baseline < _BUSY * usual for trial in self.trials)


@dataclass(frozen=True, slots=True)
class StoredSearch:
    """A search on disk. If it cannot be used, ``search`` is None and ``problem`` says why."""

    id: str
    search: Search | None
    problem: str = ""


def identify(target: CausalModel) -> Identity:
    """The identity of a loaded model on this machine."""
    device = target.device.type
    if device == "cuda":
        import torch

        device = torch.cuda.get_device_name(target.device)
    machine = Machine(platform.system(), processor(), os.cpu_count() or 0, device)
    layers = text_config(target.model.config).num_hidden_layers
    return Identity(target.fingerprint, str(target.dtype).removeprefix("torch."), layers, machine)


def find(identity: Identity) -> Search | None:
    """The search of a model on a machine, None if there is none. Raises UsageProblem if it is damaged."""
    file = _file(identity.id)
    return _read(file) if file.is_file() else None


def file_of(identity: Identity) -> Path:
    """Where the search of a model on a machine is, or would be."""
    return _file(identity.id)


def listing() -> list[StoredSearch]:
    """Every search on disk; damaged ones are listed with their problem."""
    try:
        files = sorted(file for file in _home().glob("*.json") if _ID.fullmatch(file.stem))
    except OSError:
        return []
    return [_stored(file) for file in files]


def searches_elsewhere(identity: Identity) -> list[Search]:
    """Searches of the same weights on another machine or in another dtype."""
    found = [entry.search for entry in listing() if entry.search is not None]
    return [s for s in found if s.identity.fingerprint == identity.fingerprint and s.identity != identity]


def save(search: Search) -> None:
    """Write a search to disk; its name is locked. Raises UsageProblem if it cannot be written."""
    try:
        for left in _home().glob(f".{search.identity.id}.json.*"):  # by a process that was killed
            left.unlink()
        folders.write_json(_file(search.identity.id), encoding.plain(search))
    except OSError as error:
        raise _unwritable(error) from None


def remove(name: str) -> None:
    """Delete a search. Raises UsageProblem if there is none with this id."""
    if not _ID.fullmatch(name) or not _file(name).is_file():
        known = ", ".join(entry.id for entry in listing()) or "none"
        raise UsageProblem(f"there is no search {name[:40]!r}", f"known searches: {known}")
    with locked(name):
        _file(name).unlink(missing_ok=True)


def locked(name: str) -> AbstractContextManager[Any]:
    """Lock a search against other processes. Raises UsageProblem if another process has locked it."""
    busy = UsageProblem("this model's layers are being searched already", "wait for it, or stop it")
    return folders.lock(_home(), name, busy, _unwritable)


def _unwritable(error: OSError) -> UsageProblem:
    full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", None))
    hint = f"{'make room, or ' if full else ''}set SPEC_TUI_DATA_DIR to another folder"
    return UsageProblem(f"searches cannot be saved in {_home()} ({error.strerror or error})", hint)


def _home() -> Path:
    return folders.data() / "layers"


def _file(name: str) -> Path:
    return _home() / f"{name}.json"


def _stored(file: Path) -> StoredSearch:
    try:
        return StoredSearch(file.stem, _read(file))
    except UsageProblem as error:
        return StoredSearch(file.stem, None, error.message)


def _read(file: Path) -> Search:
    try:
        with open(file, "rb") as stream:
            content = stream.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise ValueError("too long")
        search = encoding.decode(Search, content)
        if search.identity.id != file.stem:
            raise ValueError("of another model")
        return search
    except OSError as error:
        raise _damaged(file.stem, f"it cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError, UsageProblem) as error:
        raise _damaged(file.stem, f"its file is damaged ({type(error).__name__})") from None


def _damaged(name: str, what: str) -> UsageProblem:
    return UsageProblem(f"the saved search {name} cannot be used: {what}", "spec-tui search-layers --fresh begins anew")
