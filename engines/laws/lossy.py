"""What the two biased laws share. They are here to be seen and measured: both change the target's distribution.

Their drafts are point masses (a drafter writes its favourites), so given a context the draft is fixed, and the bias of
a round's first token is a number: the total variation distance between what the law makes of it and the target's p.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from engines.core.law import Law, Verdict
from engines.core.sampling import Sampling, SeededRng, softmax, to_numpy
from engines.core.tree import DraftTree
from engines.report.events import Trial

Belief = tuple[int, Sequence[int], np.ndarray]
"""A node that was drafted below (-1: the root), its children, and the target's p there, float64 [vocabulary]."""


class Lossy(Law):
    """A law that chooses among the root-to-leaf rows of the tree; the token after the row is drawn from p."""

    def __init__(self, sampling: Sampling, seed: int, dice: SeededRng | None = None) -> None:
        super().__init__(sampling)
        self.dice = dice or SeededRng(seed)

    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, None]:
        row = self.sampling.row(to_numpy(logits))
        token = int(row.argmax())
        return token, float(softmax(row)[token]), None

    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        table = to_numpy(logits)
        beliefs = ((node, below, self._probs(table[node + 1])) for node, below in tree.children().items())
        path, trials, bias = self._choose(tree, beliefs)
        verdict = Verdict(path, bias=bias)
        for node, accepted in zip([-1, *path], [*path, None]):
            row = self.sampling.row(table[node + 1])
            token = self.dice.draw(self.sampling.probs(row)) if accepted is None else tree.tokens[accepted]
            verdict.saw(row, token)
            verdict.trials.append(tuple(trials.get(node, ())))
        return verdict.looked()

    def _probs(self, logits: np.ndarray) -> np.ndarray:
        return self.sampling.probs(self.sampling.row(logits))

    @abstractmethod
    def _choose(
        self, tree: DraftTree, beliefs: Iterable[Belief]
    ) -> tuple[list[int], Mapping[int, Sequence[Trial]], float]:
        """The accepted path, what was tried below each node, and the bias of the first token."""


def rows_of(tree: DraftTree) -> list[list[int]]:
    """The root-to-leaf rows, in the order of their leaves: what published code calls retrieve indices."""
    inner, above = set(tree.parents), {-1: []}
    for node, parent in enumerate(tree.parents):
        above[node] = [*above[parent], node]
    return [above[node] for node in range(len(tree)) if node not in inner]
