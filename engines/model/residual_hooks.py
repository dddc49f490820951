"""The residual stream before and after each sublayer, seen by hooks during a module's own forwards."""

from __future__ import annotations

import torch

from engines.model.forward import See
from engines.model.sublayers import ATTENTION, MLP, Layer, Sublayers, argument, first


class ResidualHooks:
    """Hooks on the layers of a model, until ``remove``.

    Attributes:
        needs_every_row: the model's last layers read the keys of others, and leave out rows that give no logits.
        paused: see nothing meanwhile.
    """

    def __init__(self, sublayers: Sublayers, see: See) -> None:
        self.needs_every_row = len(sublayers.attention) < len(sublayers)
        self.paused = False
        self._see = see
        self._seen: dict[str, torch.Tensor] = {}
        self._hooks = [hook for layer in sublayers.layers for hook in self._watch(layer)]

    def remove(self) -> None:
        """See nothing any more."""
        for hook in self._hooks:
            hook.remove()

    def _watch(self, layer: Layer) -> list:
        """Hooks that see the residual stream go by: as it enters the MLP, or what attention adds to it where both read
        the same; and as it leaves the layer."""
        attention, mlp = layer.parts[ATTENTION], layer.parts[MLP]
        hooks = [layer.module.register_forward_hook(lambda m, *call: self._leave(layer, *call), with_kwargs=True)]
        if layer.parallel:
            hooks.append(self._output(attention.contribution, ATTENTION))
        else:
            entry = mlp.entry
            hooks.append(entry.module.register_forward_pre_hook(
                lambda m, args, kwargs: self._note("between", argument(entry.key, args, kwargs)), with_kwargs=True
            ))
        if not layer.plain:
            hooks.append(self._output(mlp.contribution, MLP))
        return hooks

    def _output(self, module: torch.nn.Module, name: str):
        return module.register_forward_hook(lambda m, args, output: self._note(name, first(output)))

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        if not self.paused:
            self._seen[name] = tensor

    def _leave(self, layer: Layer, args, kwargs, output) -> None:
        if self.paused:
            return
        stream, end, seen = argument(layer.call.key, args, kwargs), first(output), self._seen
        before = stream if layer.parallel else seen["between"].view_as(stream)
        after = stream + seen[ATTENTION] if layer.parallel else before
        if not layer.plain:
            added = seen[MLP].view_as(stream)
            end = added if layer.parts[MLP].residual is not None else before + added
        elif layer.parallel:
            end = end - seen[ATTENTION]
        self._seen = {}
        self._see(stream[0], after[0])
        self._see(before[0], end[0])
