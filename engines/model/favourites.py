"""The likeliest tokens of rows of logits, noted by the forward that made them.

A forward finds them while the logits are in its caches. Whoever looks for them later waits for memory, and that took
longer than everything else that a round does outside its forwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.errors import finite

if TYPE_CHECKING:
    import torch

COUNT = 3
"""How many of the likeliest tokens of a row are known."""


class Favourites:
    """Of each row of logits [rows, vocabulary]; a subclass holds the numbers.

    Attributes:
        ids: int64 [rows * COUNT]: the likeliest tokens, the best first, the lower id first among equals; -1 where there
            are no more.
        probs: float64 [rows * COUNT]: their probabilities; nan where a logit of the row is nan or the largest infinite.
        leads: float32 [rows]: the largest logit minus the second.
    """

    ids: Sequence[int]
    probs: Sequence[float]
    leads: Sequence[float]

    def best(self, row: int) -> tuple[int, float]:
        """The likeliest token of a row, and its probability. Raises RunFailed where that is no number."""
        return self.ids[row * COUNT], finite(self.probs[row * COUNT])

    def top(self, row: int) -> list[tuple[int, float]]:
        """Ids and probabilities of the likeliest tokens of a row."""
        part = slice(row * COUNT, (row + 1) * COUNT)
        return [(token, prob) for token, prob in zip(self.ids[part], self.probs[part]) if token >= 0]


def note(logits: torch.Tensor, found: Favourites | None) -> torch.Tensor:
    """The same logits, with what was found in them (``engines.core.sampling.noted``): the tensor carries it, so a part
    or a copy of it does not."""
    if found is not None:
        logits.favourites = found
    return logits
