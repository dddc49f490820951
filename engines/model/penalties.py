"""Repetitions penalised as ``transformers`` does it: a model whose logits depend on the text before each row.

The target and whatever model drafts are given the same penalties. To the loop, laws and drafters the penalised model is
the model, so every law keeps what it keeps: the distribution, or the text, of the penalised target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch

from engines.model.causal_model import CausalModel


@dataclass(frozen=True)
class Penalties:
    """What repetitions in prompt and answer cost.

    Attributes:
        repetition_penalty: logits of tokens that are there already are divided by it, negative ones multiplied; 1 is
            off (Keskar et al. 2019, CTRL).
        no_repeat_ngram_size: no n-gram of this size comes twice; 0 is off.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0

    @cached_property
    def _processors(self) -> list:
        from engines.libraries import hf

        return hf.penalties(float(self.repetition_penalty), self.no_repeat_ngram_size)

    def apply(self, logits: torch.Tensor, texts: Iterable[Sequence[int]]) -> torch.Tensor:
        """Logits [rows, vocabulary], each row for the token ids before it, as float32."""
        rows = []
        for row, text in zip(logits.float().split(1), texts, strict=True):
            ids = torch.tensor([text], device=logits.device)
            rows.append(reduce(lambda scores, processor: processor(ids, scores), self._processors, row))
        return torch.cat(rows)

    @property
    def on(self) -> bool:
        """Whether anything is penalised."""
        return self != Penalties()

    def of(self, model: CausalModel) -> CausalModel:
        """The model with these penalties; itself where they are off."""
        return PenalisedModel(model, self) if self.on else model


class PenalisedModel:
    """A ``CausalModel`` whose logits are penalised, each row for the text on its own path through the tree."""

    def __init__(self, model: CausalModel, penalties: Penalties) -> None:
        self._model, self._penalties = model, penalties
        self._texts: list[list[int]] = []  # up to and with each pending row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def extend(
        self, tokens: Sequence[int], cancelled: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> torch.Tensor | None:
        """See ``CausalModel.extend``."""
        logits = self._model.extend(tokens, cancelled, progress)
        return None if logits is None else self._penalties.apply(logits[None], [self._model.tokens])[0]

    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> torch.Tensor:
        """See ``CausalModel.forward``."""
        first = self._model.pending
        del self._texts[first:]  # of rows that were kept or dropped
        for token, parent in zip(tokens, parents):
            self._texts.append([*(self._texts[parent] if parent >= 0 else self._model.tokens), token])
        return self._penalties.apply(self._model.forward(tokens, parents), self._texts[first:])
