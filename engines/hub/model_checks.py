"""What the small files of a model ask for that no model needs: looked at before a library acts on it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engines.hub.untrusted_json import is_count, object_in, read_object

_MOST_LAYERS = 1000  # the deepest models have some hundred; building one takes milliseconds, or seconds with experts
_MOST = 10_000  # heads, experts, labels: the widest models have some thousand
_LAYERS = re.compile(r"(layers?|blocks|depth)$")
_COUNTED = re.compile(r"(heads?|experts?|labels)$")
_LARGEST_ID = 1 << 24  # the largest vocabularies have some hundred thousand tokens
_MOST_GROWTH = 1000  # times as long as it was, at most, is a text after all replacements of a tokenizer


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration as it stands in config.json, before transformers builds anything of the sizes in it.

    Raises:
        OSError: unreadable.
        ValueError: no JSON object, or it counts more layers, heads, experts or labels than any model has: to build, or
            to list, so many would take for ever.
    """
    found = read_object(folder / "config.json")
    for part in _objects(found):
        for key, value in part.items():
            most = _MOST_LAYERS if _LAYERS.search(key) else _MOST if _COUNTED.search(key) else None
            if most is not None and type(value) is int and value > most:
                raise ValueError(f"config.json is damaged: no model has as many {key}")
    return found


def check_tokenizer(folder: Path) -> None:
    """Look at a tokenizer's files, as far as they are JSON.

    Raises:
        OSError: unreadable.
        ValueError: a file is no JSON object, has ids that no vocabulary has, or replacements that make a text a
            thousand times as long; the message names the file.
    """
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        if not os.path.exists(folder / name):
            continue
        found = read_object(folder / name)
        if any(abs(number) >= _LARGEST_ID for number in _ids(name, found)):
            raise ValueError(f"{name} is damaged: it has ids that no vocabulary has")
        for step in ("normalizer", "decoder"):
            if _growth(found.get(step)) > _MOST_GROWTH:
                raise ValueError(f"{name} is damaged: its {step} makes a text a thousand times as long")
        if not isinstance(found.get("model_max_length", 0), int | float):
            raise ValueError(f"{name} is damaged: its model_max_length is not a number")


def generation_problem(folder: Path) -> str | None:
    """What is wrong with generation_config.json, which says where answers end; None where it is as it should be, or is
    not there."""
    try:
        end = read_object(folder / "generation_config.json").get("eos_token_id")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return str(error)
    ends = end if isinstance(end, list) else [] if end is None else [end]
    return None if all(map(is_count, ends)) else "generation_config.json is damaged: its eos_token_id is not a token id"


def _objects(found: Any) -> Iterator[dict[str, Any]]:
    """All objects in a JSON value, however deep."""
    waiting = [found]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()


def _ids(name: str, found: dict[str, Any]) -> Iterator[int]:
    vocabulary = object_in(object_in(found, "model"), "vocab") if name == "tokenizer.json" else {}
    added = found["added_tokens"] if isinstance(found.get("added_tokens"), list) else ()
    yield from (value for value in vocabulary.values() if type(value) is int)
    yield from (t["id"] for t in added if isinstance(t, dict) and type(t.get("id")) is int)
    yield from (int(key) for key in object_in(found, "added_tokens_decoder") if key.isdecimal())
    if name == "added_tokens.json":
        yield from (value for value in found.values() if type(value) is int)


def _growth(step: Any) -> float:
    """How many times as long a text may get by the replacements of a tokenizer's step, one after the other."""
    growth = 1.0
    for part in _objects(step):
        content, pattern = part.get("content"), part.get("pattern")
        if isinstance(content, str) and isinstance(pattern, dict):
            plain = pattern.get("String")
            # an expression, or nothing at all, may be found between any two characters
            growth *= max(1.0, len(content) / len(plain)) if isinstance(plain, str) and plain else 1 + len(content)
    return growth
