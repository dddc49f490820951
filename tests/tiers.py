"""What `make test` runs of a sweep, and what only `make test-all` does.

A sweep repeats one promise over every family, every variant of an engine, every size of the terminal. What it finds
most often, one case of each kind finds: those run always. The others are marked ``thorough``, and so are a few tests
that take ten seconds each.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pytest

FAMILIES = frozenset({  # grouped heads, windows, soft caps, absolute positions, chunks with experts, no trees
    "llama", "qwen2 with window", "gemma3", "gpt2", "llama4 with chunks", "bloom",
})


SIZES = [(80, 24), (120, 40), pytest.param((200, 60), marks=pytest.mark.thorough)]
"""Of the terminal, where each has a picture of its own."""
SMALL_FIRST = [(80, 24), *(pytest.param(size, marks=pytest.mark.thorough) for size in [(120, 40), (200, 60)])]
"""Of the terminal, for what has to hold at any size, and breaks at the smallest."""


def some(cases: Sequence, always: Callable[[object], bool], ids: Sequence[str] | None = None) -> list:
    """Parameters of ``parametrize``: ``always`` says which cases run in every test run. A tuple is several values."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), id=ids[n] if ids else None,
            marks=() if always(case) else pytest.mark.thorough,
        )
        for n, case in enumerate(cases)
    ]


def families(names: Collection[str]) -> list:
    """Names of families: those of ``FAMILIES`` always."""
    return some([*names], FAMILIES.__contains__)


def first_of_each(variants: Sequence[tuple], ids: Sequence[str]) -> list:
    """Engines with options, or with what goes before an engine: the first of each engine always."""
    firsts = {}
    for variant in variants:
        firsts.setdefault(next(value for value in variant if isinstance(value, str)), variant)
    return some(variants, lambda variant: any(variant is first for first in firsts.values()), ids)
