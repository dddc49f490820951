"""What a model says of itself in config.json, before transformers builds anything of that size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from engines.hub.untrusted_json import read_object

_MOST = 10_000  # the deepest models have some hundred layers, the widest some hundred heads and experts
_COUNTED = re.compile(r"(layers?|heads?|experts?|blocks|labels|depth)$")


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration as it stands in its file.

    Raises:
        OSError: unreadable.
        ValueError: no JSON object, or it counts more layers, heads, experts or labels than any model has: to build, or
            to list, so many would take for ever.
    """
    found = read_object(folder / "config.json")
    waiting: list[Any] = [found]
    while waiting:
        part = waiting.pop()
        for key, value in part.items() if isinstance(part, dict) else ():
            if type(value) is int and value > _MOST and _COUNTED.search(key):
                raise ValueError(f"config.json is damaged: no model has as many {key}")
        waiting += part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    return found
