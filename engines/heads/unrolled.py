"""EAGLE-3's training-time test (Li et al. 2025): the head's own steps unrolled over a whole text at once.

Step i of column t reads the token i + 1 places after t and the head's own output of step i - 1, and attends to the true
columns up to t and to its own earlier steps: what the drafter's i-th step does when it starts at column t.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.nn import functional as F

from engines.heads.network import HeadNetwork, Rotation


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
    columns, groups = taps.shape[1], network.shape.heads // network.shape.kv_heads
    scale = network.shape.head_dim**-0.5
    features = network.fused(taps)
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


class TeachingLoss(torch.autograd.Function):
    """Weighted cross-entropy with the target's distribution through a frozen head, a block of rows at a time: the
    logits of a step are never all in memory, and their gradient is made as they go by."""

    @staticmethod
    def forward(
        ctx, states: torch.Tensor, rows: torch.Tensor, teacher: torch.Tensor, weights: torch.Tensor
    ) -> torch.Tensor:
        """The sum over positions [n] of ``weights`` times the cross-entropy of ``states`` [n, width] times the rows
        [draft vocabulary, width] with ``teacher`` [n, draft vocabulary]."""
        loss, gradients = states.new_zeros(()), []
        for part, wanted, weight in zip(states.split(512), teacher.split(512), weights.split(512)):
            logits = F.linear(part, rows)
            normaliser = logits.logsumexp(-1)
            loss += (weight * (normaliser - (logits * wanted).sum(-1))).sum()
            logits.sub_(normaliser[:, None]).exp_().sub_(wanted).mul_(weight[:, None])
            gradients.append(logits @ rows)
        ctx.save_for_backward(torch.cat(gradients))
        return loss

    @staticmethod
    def backward(ctx, above: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """The gradient for the states alone."""
        (gradient,) = ctx.saved_tensors
        return above * gradient, None, None, None
