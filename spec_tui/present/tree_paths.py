"""Paths through a draft tree."""

from __future__ import annotations

from collections.abc import Sequence


def chain_to(parents: Sequence[int], node: int) -> list[int]:
    """The nodes from below the root down to this one, itself included; none for the root, -1."""
    chain = []
    while node >= 0:
        chain.insert(0, node)
        node = parents[node]
    return chain
