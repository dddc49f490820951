"""Redraw: the biased law of REST's and DReSD's public code at temperature > 0.

Every root-to-leaf row draws a token of its own at each of its nodes, the row that matches longest wins, the first one
among equals, and what missed is thrown away: the token after the winning row is drawn anew. So a draft has several
chances: one candidate of probability p comes out with 2p - p^2. (REST throws the draw that missed away, DReSD keeps it;
here it is thrown away.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from engines.core.tree import DraftTree
from engines.laws.lossy import Belief, Lossy, rows_of
from engines.report.events import Trial


class Redraw(Lossy):
    """Per-row draws, the longest match wins. Not lossless at temperature > 0."""

    name = "redraw"

    def _choose(
        self, tree: DraftTree, beliefs: Iterable[Belief]
    ) -> tuple[list[int], Mapping[int, Sequence[Trial]], float]:
        chances, first = [0.0] * len(tree), None
        for node, below, p in beliefs:
            first = p if node < 0 else first
            for child in below:
                chances[child] = float(p[tree.tokens[child]])
        rows, path, trials = rows_of(tree), [], defaultdict(list)
        for row in rows:
            hits = self._draw(tree, row, chances, trials)
            path = row[:hits] if hits > len(path) else path
        if first is None:
            return path, trials, 0.0
        return path, trials, float(np.abs(first_token(tree, rows, chances, first) - first).sum() / 2)

    def _draw(
        self, tree: DraftTree, row: Sequence[int], chances: Sequence[float], trials: Mapping[int, list[Trial]]
    ) -> int:
        """How many tokens of a row its own draws hit before the first miss."""
        for hits, node in enumerate(row):
            throw, hit = self.dice.accept(chances[node])
            trials[tree.parents[node]].append(Trial(node, chances[node], 1.0, throw, hit))
            if not hit:
                return hits
        return len(row)


def first_token(
    tree: DraftTree, rows: Sequence[Sequence[int]], chances: Sequence[float], p: np.ndarray
) -> np.ndarray:
    """The distribution of a round's first token under this law, float64 [vocabulary], exactly.

    Rows match independently of each other, row r at least k tokens long with the product of its first k ``chances``. It
    wins with length k where the rows before it match shorter than k and those after it no longer than k.
    """
    reach = np.zeros((len(rows), 2 + max(map(len, rows))))  # [row, k]: P(match >= k)
    for r, row in enumerate(rows):
        reach[r, : len(row) + 1] = np.cumprod([1.0, *(chances[node] for node in row)])
    shorter = 1 - reach
    one = np.ones((1, reach.shape[1]))
    before = np.cumprod(np.vstack([one, shorter[:-1]]), axis=0)[:, :-1]
    after = np.cumprod(np.vstack([one, shorter[:0:-1]]), axis=0)[::-1, 1:]
    wins = ((reach[:, :-1] - reach[:, 1:]) * before * after)[:, 1:].sum(axis=1)
    out = p * shorter[:, 1].prod()
    np.add.at(out, [tree.tokens[row[0]] for row in rows], wins)
    return out
