"""What ``CausalModel`` asks of a forward, and the one for any family: the model's own module of transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch
from torch import nn

from engines.libraries.hf import ForwardCall, PreTrainedModel
from engines.model.kv_buffer import KVBuffer
from engines.model.masks import Mask
from engines.model.sublayers import (
    ATTENTION,
    MLP,
    DecoderLayer,
    Sublayers,
    UnsupportedStructure,
    decoder_layers,
    first,
    first_tensor,
)


class Observer(Protocol):
    """What is told of hidden states while a forward runs.

    Attributes:
        layers: layers, counted from 1, after which it wants the residual stream.
        sublayers: those it wants the residual stream before and after; None: of none.
        last: whether it wants the states after the final norm.
        every_row: whether it wants them of rows that give no logits too.
    """

    layers: frozenset[int]
    sublayers: Sublayers | None
    last: bool
    every_row: bool

    def see_layer(self, layer: int, stream: torch.Tensor) -> None:
        """The residual stream [rows, width] after a layer, counted from 1."""

    def see_sublayer(self, before: torch.Tensor, after: torch.Tensor) -> None:
        """The residual stream [rows, width] before and after a sublayer: attention, then MLP, of each layer in turn."""

    def see_last(self, states: torch.Tensor) -> None:
        """The states [rows, width] after the final norm."""


class Forward:
    """A forward over the KV buffer: ``GenericForward``, or one of ours.

    Attributes:
        name: for display.
        makes_masks: whether None is a mask that it understands everywhere; else only for rows at the very beginning,
            and for one row that sees all, or, if it is ``causal``, for any rows of plain text.
        host_masks: whether it takes masks in the host's memory, wherever the model is.
        invariant: whether a row comes out the same to the last bit however it is fed.
        buffer: the kind of buffer that it reads and writes.
    """

    name = ""
    makes_masks = causal = host_masks = invariant = False
    buffer: type[KVBuffer] = KVBuffer

    def run(
        self, tokens: Sequence[int], positions: Sequence[int] | None, mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        """Logits [rows, vocabulary], or with ``last_only`` those of the last row, [1, vocabulary]. Keys and values are
        written after those in ``cache``; its length is the caller's to change."""

    def observe(self, observer: Observer | None) -> None:
        """Tell this observer, and no other, from now on; None tells nobody. Raises UnsupportedStructure: the model does
        not show what the observer wants."""

    def without(
        self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]
    ) -> AbstractContextManager[None]:
        """Forwards without these sublayers (layers from 0), of which the observer is told nothing. Raises ValueError:
        one of them cannot be left out."""


class GenericForward(Forward):
    """The ``Forward`` of a module of transformers. Where it takes no explicit positions it counts from the cache."""

    name = "generic"
    makes_masks = True

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._call = ForwardCall(model)
        self._hooks: _ObserverHooks | None = None
        self._paused = False  # the observer is told nothing meanwhile

    def run(
        self, tokens: Sequence[int], positions: Sequence[int] | None, mask: Mask, cache: KVBuffer, last_only: bool
    ) -> torch.Tensor:
        device, hooks = self.model.device, None if self._paused else self._hooks
        where = None if positions is None else torch.tensor([list(positions)], device=device)
        last = 1 if last_only else None
        if hooks is not None:
            last = None  # families leave out more than the head for rows without logits
        with hooks.listening(last_only) if hooks is not None else nullcontext():
            logits = self._call(torch.tensor([list(tokens)], device=device), cache, where, mask, last)[0]
        return logits[-1:] if last_only else logits

    def observe(self, observer: Observer | None) -> None:
        if self._hooks is not None:
            self._hooks.remove()
        self._hooks = None if observer is None else _ObserverHooks(self.model, observer)

    @contextmanager
    def without(self, sublayers: Sublayers, attention: frozenset[int], mlp: frozenset[int]) -> Iterator[None]:
        self._paused = True
        try:
            with sublayers.without(attention, mlp):
                yield
        finally:
            self._paused = False


class _ObserverHooks:
    """Hooks that tell an observer what goes by in a module's own forwards while they are ``listening``, until
    ``remove``: draft heads compute with modules of the model, too.

    Raises:
        UnsupportedStructure: the model does not show what the observer wants.
    """

    def __init__(self, model: PreTrainedModel, observer: Observer) -> None:
        self._listens = self._last_only = False
        self._observer = observer
        self._seen: torch.Tensor | None = None  # of the layer under way
        head = model.get_output_embeddings()
        if observer.last and head is None:
            raise UnsupportedStructure("it has no language modelling head")
        layers = decoder_layers(model) if observer.layers else ()
        self._hooks = [head.register_forward_pre_hook(self._head)] if head is not None else []
        for number in observer.layers:
            self._hooks.append(self._output(layers[number - 1], lambda x, i=number: observer.see_layer(i, _rows(x))))
        for layer in observer.sublayers.layers if observer.sublayers is not None else ():
            self._watch(layer)

    @contextmanager
    def listening(self, last_only: bool) -> Iterator[None]:
        """A forward; with ``last_only`` the head computes the logits of the last row only."""
        self._listens, self._last_only = True, last_only
        try:
            yield
        finally:
            self._listens = False

    def remove(self) -> None:
        """Tell nothing any more."""
        for hook in self._hooks:
            hook.remove()

    def _head(self, module: nn.Module, inputs: tuple) -> tuple | None:
        if not self._listens:
            return None
        self._observer.see_last(_rows(inputs[0]))
        return (inputs[0][:, -1:], *inputs[1:]) if self._last_only else None

    def _watch(self, layer: DecoderLayer) -> None:
        """See the residual stream go by: as it enters the MLP, or what attention adds to it where both read the same;
        and as it leaves the layer."""
        if layer.parallel:
            self._hooks.append(self._output(layer.parts[ATTENTION].modules[-1], self._note))
        else:
            self._hooks.append(layer.parts[MLP].modules[0].register_forward_pre_hook(
                lambda m, args, kwargs: self._note(first_tensor(*args, **kwargs)), with_kwargs=True))
        self._hooks.append(layer.module.register_forward_hook(
            lambda m, *call: self._leave(layer.parallel, *call), with_kwargs=True))

    def _output(self, module: nn.Module, tell):
        return module.register_forward_hook(lambda m, args, output: tell(first(output)) if self._listens else None)

    def _note(self, tensor: torch.Tensor) -> None:
        """Keep what goes by, [1, rows, width] or [rows, width], until the layer is left."""
        self._seen = tensor

    def _leave(self, parallel: bool, args, kwargs, output) -> None:
        if not self._listens:
            return
        stream, end = first_tensor(*args, **kwargs), first(output)
        seen = self._seen.view_as(stream)
        after = stream + seen if parallel else seen
        self._observer.see_sublayer(stream[0], after[0])
        self._observer.see_sublayer(stream[0] if parallel else seen[0], (end - seen if parallel else end)[0])


def _rows(states: torch.Tensor) -> torch.Tensor:
    """States of one text, [1, rows, width] or without the first dimension, as [rows, width]."""
    return states.reshape(-1, states.shape[-1])
