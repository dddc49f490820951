"""Which draft models at hand fit a target, and why the others don't: decided by their tokenizers' files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engines.errors import first_line
from engines.hub import local_models as at_hand
from engines.hub.model_source import ModelSource
from engines.hub.safetensors_headers import stored_in
from engines.hub.vocabulary import difference, vocabulary


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model at hand. ``fits`` is None where its files don't tell."""

    name: str
    origin: str
    parameters: int | None
    fits: bool | None
    why: str


@dataclass(frozen=True, slots=True)
class _Found:
    """``problem``: what keeps the model from being loaded now, None where nothing is known."""

    name: str
    origin: str
    folder: Path
    parameters: int | None
    problem: str | None = None


def candidates(target: ModelSource, named: ModelSource | None, parameters: int | None) -> tuple[Candidate, ...]:
    """The draft models at hand for a target of so many parameters: the named one, then those that fit."""
    ours = _vocabulary(target.folder)
    judged = [_judge(found, ours, parameters) for found in _at_hand(target, named)]
    return tuple(sorted(judged, key=lambda c: (c.origin != "named", not c.fits)))


def _at_hand(target: ModelSource, named: ModelSource | None) -> Iterator[_Found]:
    if named is not None:
        yield _Found(named.name, "named", named.folder, sum(stored_in(named).values()) or None)
    others = [(f"sample {m['role']}", "shipped", m) for m in at_hand.shipped() if m["path"] is not None]
    others += [(m["id"], "cache", m) for m in at_hand.cached()]
    for name, origin, model in others:
        folder = Path(model["path"])
        if not any(source is not None and folder.samefile(source.folder) for source in (target, named)):
            yield _Found(name, origin, folder, model["parameters"] or None, model["problem"])


def _vocabulary(folder: Path) -> dict[str, int] | str | None:
    """The vocabulary, or what is wrong with the files that hold it."""
    try:
        return vocabulary(folder)
    except (OSError, ValueError) as error:
        return first_line(error)


def _judge(found: _Found, ours: dict[str, int] | str | None, target: int | None) -> Candidate:
    fits, why = _fits(_vocabulary(found.folder), ours)
    if fits and found.parameters and target and found.parameters >= target:
        why += ", but it is no smaller than the target"
    if found.problem is not None:
        why += f"; {found.problem}"
    return Candidate(found.name, found.origin, found.parameters, fits, why)


def _fits(theirs: dict[str, int] | str | None, ours: dict[str, int] | str | None) -> tuple[bool | None, str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        why = difference(theirs, ours)
        return (True, "the same tokens") if why is None else (False, why)
    broken = next((v for v in (theirs, ours) if isinstance(v, str)), None)
    if broken:
        return False, broken
    return None, "its tokenizer is in no file that can be compared; loading compares"
