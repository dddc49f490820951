"""Chains that a predictor writes token by token, as the law suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engines.core.tree import DraftTree
from engines.methods.notes import Note
from engines.methods.shared.predictor import Predictor
from engines.report.events import Origin

if TYPE_CHECKING:
    import numpy as np

    from engines.core.lossless_laws import Law


class Chain:
    """A chain under way. Whoever grows it decides when it is long enough, but never drops a token once it was
    suggested: leaving out what was drawn would bias the rejection law.

    Attributes:
        tokens, probs: so far, and the drafter's belief in each.
    """

    def __init__(self, predictor: Predictor, law: Law, context: Sequence[int]) -> None:
        self._predictor, self._law, self._context = predictor, law, context
        self.tokens: list[int] = []
        self.probs: list[float] = []
        self._dists: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(self) -> tuple[int, float]:
        """Another token: one forward of the predictor. Returns it and the drafter's belief in it."""
        logits = self._predictor.step(self.tokens[-1]) if self.tokens else self._predictor.after(self._context)
        token, prob, dist = self._law.suggest(logits, len(self._context) + len(self))
        if dist is not None:
            self._dists[len(self) - 1] = dist
        self.tokens.append(token)
        self.probs.append(prob)
        return token, prob

    def tree(self, origin: Origin, note: Note) -> DraftTree:
        """It as a draft."""
        return DraftTree.chain(self.tokens, origin, self.probs, dists=self._dists or None, note=note)

