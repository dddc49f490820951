"""Files of prompts: lines of JSON, each with a ``prompt``, or with ``turns`` as Spec-Bench's question file has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engines.errors import UsageProblem
from spec_tui.cli.prompt import read_text

_SHAPE = 'a line is {"prompt": "..."} or {"turns": ["...", ...]}; other fields are not looked at'


def read_prompts(path: Path) -> tuple[tuple[str, ...], ...]:
    """The turns of each prompt; blank lines are skipped. Raises UsageProblem, with the line."""
    lines = read_text(path, "--prompts").removeprefix("\ufeff").split("\n")  # some editors begin a file with a mark
    found = tuple(_turns(line, f"line {n} of {path}") for n, line in enumerate(lines, 1) if line.strip())
    if not found:
        raise UsageProblem(f"there is no prompt in {path}", _SHAPE)
    return found


def _turns(line: str, where: str) -> tuple[str, ...]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        raise UsageProblem(f"{where} is not JSON", _SHAPE) from None
    turns: Any = None
    if isinstance(record, dict):
        turns = record["turns"] if "turns" in record else [record.get("prompt")]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise UsageProblem(f"{where} has no prompt", _SHAPE)
    return tuple(turns)
