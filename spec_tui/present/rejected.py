"""Rejected draft tokens in the text: what the drafter would have written wherever the text went another way.

At each place of a round the drafter has a first choice. Where another token came, that choice was rejected, and with it
all that the drafter would have written after it. Of a tree these are the branches that it ranked first; its other
branches are left to the picture of the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from engines.core.tree import children
from engines.report.events import UNDISCLOSED, Round
from engines.report.run_state import RunState, best_path
from spec_tui.present.text import one_line

LONGEST = 16
"""So many tokens of a branch are written; then how many more there were."""


def branches(event: Round) -> dict[int, list[int]]:
    """Nodes of each rejected branch, by the index in ``event.emitted`` of the token that came instead of it."""
    found, below, here = {}, children(event.draft.parents), -1
    for index, token in enumerate(event.emitted):
        nodes = below.get(here)
        if not nodes:
            break
        first = max(nodes, key=lambda node: (event.draft.probs[node] or 0.0, -node))  # as ``best_path`` goes on
        if first != token.node:
            branch = [first, *best_path(event.draft, first)]
            if told := list(takewhile(lambda node: event.draft.tokens[node] != UNDISCLOSED, branch)):
                found[index] = told
        if (here := token.node) < 0:
            break
    return found


def labels(event: Round) -> dict[int, list[str]]:
    """The branches as they are written, in words with the blank before them."""
    return {index: words([event.draft.pieces[node] for node in branch]) for index, branch in branches(event).items()}


def words(pieces: Sequence[str]) -> list[str]:
    """Rejected tokens as they are written in the text, in words: line breaks, tabs, blanks at the end and blanks in a
    row are marks, a blank before a word stays one, and what could steer a terminal is a mark."""
    text = one_line("".join(pieces[:LONGEST]))
    text = re.sub(r"(?<=[^ ]) (?=[^ ])|^ (?=[^ ])|( +)", lambda run: "·" * len(run[1]) if run[1] else " ", text)
    more = [f" …+{len(pieces) - LONGEST}"] if len(pieces) > LONGEST else []
    return re.findall(r" ?[^ ]+", text) + more


def interleaved(
    run: RunState, start: int = 0, stop: int | None = None, keeps: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Each token of a run from ``start`` to ``stop``: its index, and the labels of the branch that was rejected before
    it; none where the view does not keep them (``keeps``)."""
    number, of_round = None, {}
    for index in range(start, len(run.tokens) if stop is None else stop):
        token = run.tokens[index]
        if token.round != number:
            number = token.round
            of_round = labels(run.rounds[number]) if keeps and number >= 0 else {}
        yield index, of_round.get(index - run.starts[number], []) if number >= 0 else []
