"""What entries ask: the benchmark's own suite and more questions, in our own words; or a file of the user's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from engines.bench import suite
from engines.bench.prompt_files import open_prompts
from engines.bench.suite import Suite, parse
from engines.reproduce.entry import Asked

MORE = Path(__file__).with_name("questions.jsonl")
STORE_PROMPTS = Path(__file__).with_name("store_prompts.txt")
"""Prompts whose answers datastores hold; none of them measures."""


@cache
def known() -> Suite:
    """All questions that ship."""
    own = suite.shipped()
    return Suite("spec-tui's own", own.cases + parse(MORE.read_text("utf-8"), MORE.name).cases)


def asked_of(asked: Asked) -> Suite:
    """What an entry asks. Raises UsageProblem: there is no such file, or no such task."""
    return _of_tasks(asked).limited(asked.most)


def _of_tasks(asked: Asked) -> Suite:
    whole = open_prompts(Path(asked.file)).suite if asked.file else known()
    return whole.of_tasks(asked.tasks)
