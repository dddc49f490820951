"""A small draft model guesses, the target checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engines.core.outcome import Outcome
from engines.cost.budget import DRAFT_MODEL
from engines.errors import UsageProblem
from engines.methods.drafter import Resources
from engines.methods.shared.predictor import ModelPredictor, TranslatingPredictor
from engines.methods.shared.predictor_drafter import PredictorDrafter


class DraftModel(PredictorDrafter):
    """Drafts with a second causal model that keeps its own KV buffer across rounds and turns."""

    expected = DRAFT_MODEL

    def __init__(self, resources: Resources, **options: Any) -> None:
        if resources.draft_model is None:
            raise UsageProblem("the draft engine needs a draft model, and none is loaded",
                               "give --draft-model a smaller model, or choose another engine")
        self.model = resources.draft_model
        words = resources.translation
        predictor = (ModelPredictor(self.model, resources.vocab_size) if words is None else
                     TranslatingPredictor(self.model, resources.vocab_size, words))
        super().__init__(resources, predictor, self.model, resources.draft_price, **options)

    def unread(self, context: Sequence[int]) -> int:
        return self.predictor.unread(context)

    def start(self, outcome: Outcome) -> None:
        """Prefill the prompt here, so that its time counts as prefill and not as drafting."""
        self.predictor.restart()
        if self.predictor.room(outcome.context):
            self.predictor.read(outcome.context, self.resources.cancelled, self.resources.progress)
