"""A model's own module of transformers, run over the KV buffer: any family that keeps keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature

import torch
from transformers import PreTrainedModel

from engines.model.forward import Mask, See
from engines.model.kv_buffer import KVBuffer
from engines.model.residual_hooks import ResidualHooks
from engines.model.sublayer_discovery import find
from engines.model.sublayers import Sublayers


def takes(model: PreTrainedModel) -> frozenset[str]:
    """Names of the arguments of a model's forward; not every model's own code has all of them."""
    return frozenset(signature(model.forward).parameters)


class GenericForward:
    """The ``Forward`` of a module of transformers. Where it takes no explicit positions it counts from the cache."""

    name = "generic"
    makes_masks = True
    host_masks = False

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.hidden: torch.Tensor | None = None
        self._takes = takes(model)
        self._head_hook = None
        self._streams: ResidualHooks | None = None

    def run(
        self, tokens: Sequence[int], positions: Sequence[int] | None, mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        device = self.model.device
        kwargs = {"attention_mask": mask} if mask is not None else {}
        if positions is not None:
            kwargs["position_ids"] = torch.tensor([list(positions)], device=device)
        every_row = self._streams is not None and self._streams.needs_every_row
        if last_only and "logits_to_keep" in self._takes and not every_row:
            kwargs["logits_to_keep"] = 1
        ids = torch.tensor([list(tokens)], device=device)
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True, **kwargs).logits[0]

    def keep_hidden(self, on: bool) -> bool:
        head = self.model.get_output_embeddings()
        if self._head_hook is not None:
            self._head_hook.remove()
            self._head_hook, self.hidden = None, None
        if on and head is not None:
            self._head_hook = head.register_forward_pre_hook(self._note_hidden)
        return head is not None

    def _note_hidden(self, module, inputs) -> None:
        self.hidden = inputs[0].reshape(-1, inputs[0].shape[-1])

    def sublayers(self) -> Sublayers:
        return find(self.model)

    @contextmanager
    def without(self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        watched = self._streams
        if watched is not None:
            watched.paused = True
        try:
            with sublayers.without(attention, mlp):
                yield
        finally:
            if watched is not None:
                watched.paused = False

    def watch(self, sublayers: Sublayers, see: See | None) -> None:
        if self._streams is not None:
            self._streams.remove()
        self._streams = ResidualHooks(sublayers, see) if see is not None else None
