"""Dropping attention and MLP sublayers of a Llama model by scaling what they add."""

import torch


class SublayerGates:
    """Forward hooks that multiply each sublayer's output by a gate, one per sublayer and sequence.

    Sublayers are ordered attention 0, MLP 0, attention 1, MLP 1, ... `values` is a tensor of shape
    (sublayers, sequences or 1), or None for the model as it is.
    """

    def __init__(self, model: torch.nn.Module):
        self.values: torch.Tensor | None = None
        self._hooks = []
        for layer in model.model.layers:
            for module in (layer.self_attn, layer.mlp):
                self._hooks.append(module.register_forward_hook(self._hook(len(self._hooks))))

    def _hook(self, index: int):
        def scale(_module, _inputs, output):
            if self.values is None:
                return None
            first = output[0] if isinstance(output, tuple) else output
            first = first * self.values[index].view(-1, 1, 1).to(first.dtype)
            return (first, *output[1:]) if isinstance(output, tuple) else first

        return scale

    def remove(self) -> None:
        """Take the hooks off the model."""
        for hook in self._hooks:
            hook.remove()


def drop_probabilities(layers: int, attention: float, mlp: float) -> torch.Tensor:
    """Per sublayer: how often it is dropped, rising linearly with depth from 0 to the given maxima."""
    depth = torch.arange(layers) / max(1, layers - 1)
    return torch.stack([depth * attention, depth * mlp], dim=1).flatten()


def random_gates(probabilities: torch.Tensor, sequences: int, seed: int) -> torch.Tensor:
    """Gates of one step: 0 where dropped, else 1/(1-p), so that the full model is the expected one."""
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(len(probabilities), sequences, generator=generator) >= probabilities[:, None]
    return kept / (1 - probabilities[:, None])
