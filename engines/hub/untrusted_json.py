"""JSON that somebody else wrote: an object, or a sentence about what it is instead."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

from engines.folders import open_file

LARGEST = 200 << 20
"""Bytes of JSON that are read at once; the largest tokenizers take a fifth of that."""


def read_object(file: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        OSError: unreadable.
        ValueError: no JSON, no object, too large or nested too deep; the message names the file.
    """
    try:
        with open_file(file) as stream:
            return parse_object(stream.read(LARGEST + 1), file.name)
    except OSError as error:
        if error.errno == errno.ESPIPE:
            raise ValueError(f"{file.name} is damaged: {error.strerror}") from None
        raise


def parse_object(content: bytes, name: str) -> dict[str, Any]:
    """The same for bytes of the file ``name``. Raises ValueError."""
    if len(content) > LARGEST:
        raise ValueError(f"{name} is damaged: it has more than {LARGEST >> 20} MiB")
    try:
        found = json.loads(content)
    except RecursionError:
        raise ValueError(f"{name} is damaged: it is nested too deep") from None
    except ValueError:
        raise ValueError(f"{name} is damaged: it is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} is damaged: it is not a JSON object")
    return found


def object_in(found: dict[str, Any], key: str) -> dict[str, Any]:
    """The object under a key; empty where there is another thing or none."""
    value = found.get(key)
    return value if isinstance(value, dict) else {}


def words_in(found: dict[str, Any], key: str) -> list[str]:
    """The strings in the list under a key; empty where there is another thing or none."""
    value = found.get(key)
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def is_count(value: Any) -> bool:
    """Whether this is a number of things that a computer could hold."""
    return type(value) is int and 0 <= value < 1 << 60
