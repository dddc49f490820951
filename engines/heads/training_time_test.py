"""EAGLE-3's training-time test (Li et al. 2025, 3.2): the head's own steps unrolled over a whole text at once, and the
head under that training, of EAGLE-1 and 2 too.

Step i of column t reads the token i + 1 places after t and the head's own output of step i - 1, and attends to the true
columns up to t and to its own earlier steps: what the drafter's i-th step does when it starts at column t.

What is done otherwise than in the paper, for small heads and little time: the residual stream of a target has channels
a thousand times larger than others, so taps are divided by their root mean square, channel by channel, which the saved
``fc`` contains again. ``fc`` begins as the least-squares map from what it reads at a token to the state of the next,
and what the layer adds begins at zero, so that the first step already predicts. A head of EAGLE-1 and 2 gets this
training in place of its paper's (Li et al. 2024, 4.1: one step, noise on the features, which are regressed too).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.nn.utils.rnn import pad_sequence

from engines.heads.head_config import HeadConfig
from engines.heads.hidden_state_cache import TappedText
from engines.heads.network import HeadNetwork, Rotation
from engines.heads.training import Batch, Student, TargetParts

_FIT = 16_384  # columns that the first ``fc`` is fitted on
_RIDGE = 0.02  # of the mean square of the taps


class EagleStudent(Student):
    """A head of the EAGLE family. ``embeddings``: [vocabulary, width], which stay as they are."""

    def __init__(self, config: HeadConfig, embeddings: torch.Tensor) -> None:
        super().__init__()
        self.network, self._embeddings = HeadNetwork(config), embeddings
        self._rotation = Rotation(config.rope_theta, config.head_dim, embeddings)
        self.register_buffer("scale", torch.ones(max(1, len(config.layers)) * config.target_width))
        if self.network.fc.bias is not None:  # vLLM's head of EAGLE-1 and 2 has none
            self.network.fc.bias.requires_grad_(False)

    @torch.no_grad()
    def begin(self, texts: Sequence[TappedText], parts: TargetParts) -> None:
        network = self.network
        for parameter in network.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=0.02)
        network.o_proj.weight.zero_()
        network.down_proj.weight.zero_()
        sampled = texts[:: max(1, sum(map(len, texts)) // _FIT)]
        read = torch.cat([self._features(text)[:-1] for text in sampled])
        states = torch.cat([text.final[1:] for text in sampled]).float()
        if network.config.layers:
            network.norm.copy_(parts.norm)
            states /= parts.norm
            self.scale.copy_(read.square().mean(0).sqrt().clamp_min(1e-6))
            read /= self.scale
        else:
            network.fc.bias.zero_()
            read = torch.cat([self._embeddings[torch.cat([text.tokens[1:] for text in sampled])], read], -1)
        covariance = read.T @ read
        covariance.diagonal().mul_(1 + _RIDGE)
        network.fc.weight.copy_(torch.linalg.solve(covariance, read.T @ states).T)

    def states(self, batch: Batch, steps: int) -> Iterator[torch.Tensor]:
        taps = pad_sequence([self._features(text) for text in batch.texts], batch_first=True) / self.scale
        first = max(0, min(text.start for text in batch.texts) - 1 - steps)
        outputs = unrolled(self.network, self._rotation, taps, self._embeddings[batch.ids], steps, first)
        for step, output in enumerate(outputs):
            yield self.network.final(output[batch.rows, batch.positions - 1 - step - first])

    def weights(self) -> dict[str, torch.Tensor]:
        found = super().weights()
        if self.network.config.layers:
            found["fc.weight"] /= self.scale
        return found

    def _features(self, text: TappedText) -> torch.Tensor:
        """What the head reads of the target, [tokens, taps * width]."""
        return (text.taps if self.network.config.layers else text.final).float()


def unrolled(
    network: HeadNetwork, rotation: Rotation, taps: torch.Tensor, embedded: torch.Tensor, steps: int, first: int = 0
) -> Iterator[torch.Tensor]:
    """The layer's outputs [texts, columns - first, width] of each step.

    Args:
        taps: [texts, columns, taps * width], of texts padded at their ends.
        embedded: [texts, columns + steps, width], embeddings of all tokens from the first on; column t reads those
            of t + 1, t + 2 and so on.
        first: outputs are of columns from this one on; columns before it are only attended to.
    """
    columns, groups = taps.shape[1], network.config.heads // network.config.kv_heads
    scale = network.config.head_dim**-0.5
    features = network.fused(taps).to(taps.dtype)  # products may be bfloat16
    read, residual = network.entry(embedded[:, 1 : columns + 1], features)
    queries, true_keys, true_values = _wide(network.heads(read, rotation.at(range(columns))), groups)
    queries, residual = queries[:, :, first:], residual[:, first:]
    hidden = torch.ones(columns, columns, dtype=torch.bool, device=taps.device).triu(1)[first:]
    bias = torch.zeros(hidden.shape, dtype=taps.dtype, device=taps.device).masked_fill_(hidden, float("-inf"))
    keys: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    for step in range(steps):
        if step:
            read, residual = network.entry(embedded[:, first + 1 + step : columns + 1 + step], features)
            position = range(first + step, columns + step)
            queries, key, value = _wide(network.heads(read, rotation.at(position)), groups)
            keys.append(key)
            values.append(value)
        scores = torch.baddbmm(
            bias.expand(queries.shape[0] * queries.shape[1], -1, -1), queries.flatten(0, 1),
            true_keys.flatten(0, 1).transpose(1, 2), alpha=scale,
        ).unflatten(0, queries.shape[:2])
        own = [(queries * key).sum(-1, keepdim=True) * scale for key in keys]
        weights = torch.cat([scores, *own], -1).softmax(-1)
        attended = weights[..., :columns] @ true_values
        for back, value in enumerate(values):
            attended = attended + weights[..., columns + back, None] * value
        output = network.leave(attended, residual)
        yield output
        features = network.fed_back(output)


def _wide(
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor], groups: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys and values repeated for the queries that share them."""
    queries, keys, values = found
    return queries, keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
