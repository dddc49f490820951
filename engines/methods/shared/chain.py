"""Chains that a causal model writes token by token, as the law suggests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engines.core.tree import DraftTree
from engines.report.events import Origin

if TYPE_CHECKING:
    import numpy as np
    import torch

    from engines.laws import Law
    from engines.model.causal_model import CausalModel


class Chain:
    """A chain under way. Whoever grows it decides when it is long enough, but never drops a token once it was
    suggested: leaving out what dice said would bias the rejection law.

    Args:
        position: of its first token.

    Attributes:
        tokens, probs: so far, and the drafter's belief in each.
    """

    def __init__(self, law: Law, position: int) -> None:
        self._law, self._position = law, position
        self.tokens: list[int] = []
        self.probs: list[float] = []
        self._dists: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, logits: torch.Tensor) -> tuple[int, float]:
        """Another token, from the drafter's logits [vocabulary] after the last one. Returns it and the belief in it."""
        token, prob, dist = self._law.suggest(logits, self._position + len(self))
        if dist is not None:
            self._dists[len(self) - 1] = dist
        self.tokens.append(token)
        self.probs.append(prob)
        return token, prob

    def tree(self, origin: Origin, note: dict[str, Any]) -> DraftTree:
        """It as a draft."""
        return DraftTree.chain(self.tokens, origin, self.probs, dists=self._dists or None, note=note)


def catch_up(model: CausalModel, context: Sequence[int]) -> torch.Tensor:
    """Feed what a model's cache lacks of the context, all of it at first, later what the target added. Returns the
    logits [vocabulary] after its last token."""
    return model.extend(context[model.rewind(context) :])
