"""Which draft models on this machine fit a target, and why the others don't: decided by their tokenizers' files,
without building a tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engines.errors import first_line
from engines.hub.local_models import cached, shipped
from engines.hub.model_source import ModelSource
from engines.hub.safetensors_headers import stored_in
from engines.hub.untrusted_json import read_object


@dataclass(frozen=True, slots=True)
class Candidate:
    """A draft model on this machine.

    Attributes:
        origin: "named" by the user, "shipped" or in the hub's "cache".
        parameters: their number, None where the files don't tell.
        fits: None where the files don't tell.
    """

    name: str
    origin: str
    parameters: int | None
    fits: bool | None
    why: str


def candidates(target: ModelSource, named: ModelSource | None, parameters: int | None) -> tuple[Candidate, ...]:
    """The draft models on this machine for a target of so many parameters: the named one, then those that fit."""
    ours = _readable(target.folder)
    found = [_judge(*one, ours, parameters) for one in _local(target, named)]
    return tuple(sorted(found, key=lambda c: (c.origin != "named", not c.fits)))


def _local(target: ModelSource, named: ModelSource | None) -> Iterator[tuple[Path, Candidate, str | None]]:
    """Folder, what is known before the vocabularies are compared, and what keeps the model from being loaded now."""
    if named is not None:
        yield named.folder, Candidate(named.name, "named", sum(stored_in(named).values()) or None, None, ""), None
    others = [(f"sample {model['role']}", "shipped", model) for model in shipped() if model["path"] is not None]
    others += [(model["id"], "cache", model) for model in cached()]
    for name, origin, model in others:
        folder = Path(model["path"])
        if not any(source is not None and folder.samefile(source.folder) for source in (target, named)):
            yield folder, Candidate(name, origin, model["parameters"] or None, None, ""), model["problem"]


def _judge(
    folder: Path, candidate: Candidate, problem: str | None, ours: dict[str, int] | str | None, target: int | None
) -> Candidate:
    fits, why = _fits(_readable(folder), ours)
    if fits and candidate.parameters and target and candidate.parameters >= target:
        why += ", but it is no smaller than the target"
    if problem is not None:
        why += f"; {problem}"
    return replace(candidate, fits=fits, why=why)


def _fits(theirs: dict[str, int] | str | None, ours: dict[str, int] | str | None) -> tuple[bool | None, str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        why = difference(theirs, ours)
        return (True, "the same tokens") if why is None else (False, why)
    broken = next((v for v in (theirs, ours) if isinstance(v, str)), None)
    if broken:
        return False, broken
    return None, "its tokenizer is in no file that can be compared; loading compares"


def _readable(folder: Path) -> dict[str, int] | str | None:
    """The vocabulary, or what is wrong with the files that hold it."""
    try:
        return vocabulary(folder)
    except (OSError, ValueError) as error:
        return first_line(error)


def vocabulary(folder: Path) -> dict[str, int] | None:
    """Token by token its id, as the tokenizer's ``get_vocab()``; None where no file says it in JSON.

    Raises:
        OSError, ValueError: a file is unreadable or damaged.
    """
    try:
        found = _fast(folder / "tokenizer.json") if (folder / "tokenizer.json").exists() else _slow(folder)
        if found is None:
            return None
        settings = _read(folder / "tokenizer_config.json")
        for number, token in (settings.get("added_tokens_decoder") or {}).items():
            found.setdefault(token["content"] if isinstance(token, dict) else token, int(number))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"the tokenizer files in {folder.name} are damaged") from error
    if not all(isinstance(token, str) and type(number) is int for token, number in found.items()):
        raise ValueError(f"the tokenizer files in {folder.name} are damaged")
    return found


def _fast(file: Path) -> dict[str, int]:
    content = _read(file)
    words = content["model"]["vocab"]  # {token: id}, or for Unigram [[token, score], ...]
    found = dict(words) if isinstance(words, dict) else {entry[0]: i for i, entry in enumerate(words)}
    return found | {token["content"]: token["id"] for token in content.get("added_tokens") or ()}


def _slow(folder: Path) -> dict[str, int] | None:
    found = _read(folder / "vocab.json")
    return found | _read(folder / "added_tokens.json") if found else None


def _read(file: Path) -> dict[str, Any]:
    return read_object(file) if file.exists() else {}


def difference(theirs: dict[str, int], ours: dict[str, int]) -> str | None:
    """Why a draft model of one vocabulary does not fit a target of another, in words; None if it fits."""
    if theirs == ours:
        return None
    if len(theirs) != len(ours):
        return f"it has {len(theirs):,} tokens, the target {len(ours):,}"
    here, there = ({number: token for token, number in v.items()} for v in (ours, theirs))
    differing = sorted(n for n in here.keys() | there.keys() if here.get(n) != there.get(n))
    first = differing[0]
    other = f"{first} is {there.get(first)!r}, in the target {here.get(first)!r}"
    return f"{len(differing):,} of {len(ours):,} tokens differ: {other}"
