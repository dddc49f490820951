"""A learned head of the EAGLE family guesses, the target checks."""

from __future__ import annotations

from typing import Any

from engines.core.outcome import Outcome
from engines.errors import UsageProblem
from engines.heads.head_config import EAGLE_HEAD
from engines.methods.drafter import Resources
from engines.methods.shared.predictor_drafter import PredictorDrafter


class Eagle(PredictorDrafter):
    """Drafts with a head that reads the target's hidden states of every row of the context; it keeps keys and values of
    its own across rounds and turns."""

    def __init__(self, resources: Resources, **options: Any) -> None:
        if EAGLE_HEAD not in resources.heads:
            raise UsageProblem(f"the eagle engine needs an {EAGLE_HEAD}, and none is loaded",
                               "give --head one that was trained for this model, or choose another engine")
        self.head = resources.heads[EAGLE_HEAD]
        self.features, self.reads, self.expected = self.head.request, self.head.reads, self.head.agreement
        super().__init__(resources, self.head, self.head, resources.head_prices.get(EAGLE_HEAD), **options)

    def start(self, outcome: Outcome) -> None:
        """Read the prompt here, so that its time counts as prefill and not as drafting."""
        if len(outcome.context) < self.head.context_limit:
            self.head.after(outcome.context, self.resources.cancelled)
