"""The two lossy laws. They are here to be seen and measured: both change the target's distribution.

Their drafts are point masses (a drafter writes its favourites), so given a context the draft is fixed, and the bias of
a round's first token is a number: the total variation distance between what the law makes of it and the target's p.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from engines.core.lossless_laws import Law, Suggestion, Tokens, Verdict
from engines.core.sampling import Sampling, softmax, to_numpy
from engines.core.tree import DraftTree, Trial, children
from engines.randomness import SeededRng

EPSILON = 0.09  # Medusa's posterior_threshold
DELTA = 0.3  # Medusa's posterior_alpha
Belief = tuple[int, Sequence[int], np.ndarray]
"""A node that was drafted below (-1: the root), its children, and the target's p there, float64 [vocabulary]."""


class Lossy(Law):
    """A law that chooses among the root-to-leaf rows of the tree; the token after the row is drawn from p."""

    def __init__(self, sampling: Sampling, seed: int, rng: SeededRng | None = None) -> None:
        super().__init__(sampling)
        self.rng = rng or SeededRng(seed)

    def suggest(self, logits: torch.Tensor, position: int, tokens: Tokens = None) -> Suggestion:
        row = self.sampling.row(to_numpy(logits))
        best = int(row.argmax())
        return best, float(softmax(row)[best]), None

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table = to_numpy(logits)
        beliefs = ((node, below, self._probs(table[node + 1])) for node, below in children(tree.parents).items())
        path, trials, bias = self._choose(tree, beliefs)
        verdict = Verdict(path, bias=bias)
        for node, accepted in zip([-1, *path], [*path, None]):
            row = self.sampling.row(table[node + 1])
            token = self.rng.draw(self.sampling.probs(row)) if accepted is None else tree.tokens[accepted]
            verdict.rows.append(row)
            verdict.tokens.append(token)
            verdict.trials.append(tuple(trials.get(node, ())))
        return verdict

    def _probs(self, logits: np.ndarray) -> np.ndarray:
        return self.sampling.probs(self.sampling.row(logits))

    @abstractmethod
    def _choose(
        self, tree: DraftTree, beliefs: Iterable[Belief]
    ) -> tuple[list[int], Mapping[int, Sequence[Trial]], float]:
        """The accepted path, what was tried below each node, and the bias of the first token."""


class Redraw(Lossy):
    """The public code of REST and DReSD at temperature > 0.

    Every root-to-leaf row draws a token of its own at each of its nodes; the row that matches longest wins, the first
    one among equals. The draw that missed is discarded, and the token after the winning row is drawn again: so a draft
    has several chances, and one candidate of probability p comes out with 2p - p^2. (REST discards the draw that
    missed, DReSD keeps it; here it is discarded.)
    """

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
            drawn, hit = self.rng.accept(chances[node])
            trials[tree.parents[node]].append(Trial(node, chances[node], 1.0, drawn, hit))
            if not hit:
                return hits
        return len(row)


def first_token(tree: DraftTree, rows: Sequence[Sequence[int]], chances: Sequence[float], p: np.ndarray) -> np.ndarray:
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


class Typical(Lossy):
    """Typical acceptance: Medusa's law (Cai et al. 2024).

    A drafted token x is kept where ``p(x) > min(epsilon, delta * exp(-H(p)))``, without a random draw; the longest path
    wins, the likelier one among equals. At temperature 0 that is matching the argmax. The token after the path is drawn
    from p, so that all of the bias is the test's (Medusa's code takes the argmax there, at any temperature).
    """

    name = "typical"

    def _choose(
        self, tree: DraftTree, beliefs: Iterable[Belief]
    ) -> tuple[list[int], Mapping[int, Sequence[Trial]], float]:
        trials: dict[int, list[Trial]] = {}
        chances, kept = [0.0] * len(tree), [False] * len(tree)
        for node, below, p in beliefs:
            bound = threshold(p)
            for child in below:
                chances[child] = float(p[tree.tokens[child]])
                kept[child] = chances[child] > bound
            trials[node] = [Trial(child, chances[child], 1.0, bound, kept[child]) for child in below]
        path, best = [], (0, 0.0)
        for row in rows_of(tree):
            length = next((i for i, node in enumerate(row) if not kept[node]), len(row))
            rank = (length, math.prod(chances[node] for node in row[:length]))
            if length and rank > best:
                path, best = row[:length], rank
        return path, trials, 1 - chances[path[0]] if path else 0.0  # all of the first token's mass is on one token


def threshold(p: np.ndarray) -> float:
    """min(epsilon, delta * exp(-H)) of a distribution [vocabulary], H in nats as Medusa computes it."""
    entropy = -float((p * np.log(p + 1e-5)).sum())
    return min(EPSILON, DELTA * math.exp(-entropy))


def rows_of(tree: DraftTree) -> list[list[int]]:
    """The root-to-leaf rows, in the order of their leaves: what published code calls retrieve indices."""
    inner, above = set(tree.parents), {-1: []}
    for node, parent in enumerate(tree.parents):
        above[node] = [*above[parent], node]
    return [above[node] for node in range(len(tree)) if node not in inner]
