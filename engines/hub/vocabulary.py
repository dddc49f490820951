"""Vocabularies, read from tokenizer files without building a tokenizer, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.hub.untrusted_json import read_object


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
