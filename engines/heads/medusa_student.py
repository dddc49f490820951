"""Medusa heads under training (Cai et al. 2024, Medusa-1): the target stays as it is.

Other than in the paper, the goal is the target's distribution at each place and not the token of the text alone, and
all heads share the rows of the target's language modelling head. They begin as the identity, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from engines.heads.head_config import MedusaConfig
from engines.heads.hidden_state_cache import TappedText
from engines.heads.medusa_network import MedusaNetwork
from engines.heads.training import Batch, Student, TargetParts


class MedusaStudent(Student):
    """All heads of a file; step i is head i. ``shift``: how many places further than said the heads are taken to
    draft."""

    def __init__(self, config: MedusaConfig, shift: int = 0) -> None:
        super().__init__()
        self.network, self._shift = MedusaNetwork(config), shift

    def begin(self, texts: Sequence[TappedText], parts: TargetParts) -> None:
        """They begin as they are made."""

    def states(self, batch: Batch, steps: int) -> Iterator[torch.Tensor]:
        for head in range(steps):
            yield self.network.one(head, batch.final_before(1 + head + self._shift))
