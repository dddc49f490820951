"""Files of prompts: lines of JSON, each with a ``prompt``, or with ``turns`` as Spec-Bench's question file has them."""

from __future__ import annotations

from pathlib import Path

from engines.bench.suite import records
from spec_tui.cli.prompt import read_text


def read_prompts(path: Path) -> tuple[tuple[str, ...], ...]:
    """The turns of each prompt; other fields are not looked at. Raises UsageProblem, with the line."""
    return tuple(tuple(record["turns"]) for _, record in records(read_text(path, "--prompts"), str(path)))
