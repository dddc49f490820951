"""An audit written a second time, from the definitions: plain transformers, plain numpy, nothing of ``engines``.

One forward over the whole text, float64 from there on. What it shares with the program is the law's definition: the
noise of a position comes from Philox with the seed as key and the position as second word of the counter, as
-log(-log(1 - u)), u the middle of one of 2**32 equal steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass
class Position:
    """What the target would have done, and how far the answer's token is from it."""

    choice: int
    second: int
    lead: float
    gap: float
    prob: float
    allowed: bool


def plain_logits(model, prompt, tokens) -> np.ndarray:
    """float64 logits [len(tokens), vocabulary] of a transformers model, teacher-forced."""
    with torch.no_grad():
        out = model(torch.tensor([[*prompt, *tokens]]))
    return out.logits[0, len(prompt) - 1 : -1].double().numpy()


def noise(seed: int, position: int, size: int) -> np.ndarray:
    bits = np.random.Philox(counter=[0, position, 0, 0], key=seed)
    words = bits.random_raw(size)
    halves = np.stack([words & 0xFFFFFFFF, words >> 32], axis=1).ravel()[:size]
    u = (halves.astype(np.float64) + 0.5) / 2**32
    return -np.log(-np.log1p(-u))


def allowed(scores: np.ndarray, top_p: float, top_k: int) -> np.ndarray:
    """Which tokens top-k, then top-p keep."""
    order = np.argsort(-scores)
    keep = np.zeros(len(scores), bool)
    if top_k:
        order = order[:top_k]
    weights = np.exp(scores[order] - scores[order[0]])
    before = np.concatenate([[0], np.cumsum(weights)[:-1]]) / weights.sum()
    keep[order[before < top_p] if top_p < 1 else order] = True
    return keep


def reaudit(logits, tokens, start, temperature=0.0, top_p=1.0, top_k=0, seed=0) -> list[Position]:
    """Every position of an answer whose first token stands at index ``start`` of the text."""
    out = []
    for i, (row, token) in enumerate(zip(logits, tokens)):
        scores, keep = row, np.ones(len(row), bool)
        if temperature:
            scores = row / temperature
            keep = allowed(scores, top_p, top_k)
            weights = np.where(keep, np.exp(scores - scores.max()), 0)
            scores = scores + noise(seed, start + i, len(row))
        else:
            weights = np.exp(row - row.max())
        ranked = np.argsort(np.where(keep, -scores, np.inf), kind="stable")
        choice, second = int(ranked[0]), int(ranked[1])
        lead = float(scores[choice] - scores[second]) if keep[second] else np.inf
        gap = max(0.0, float(scores[choice] - scores[token]))
        out.append(Position(choice, second, lead, gap, float(weights[choice] / weights.sum()), bool(keep[token])))
    return out
