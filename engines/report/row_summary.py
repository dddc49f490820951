"""What rows of the target's logits say: the probability of the token that was chosen, the likeliest ones, the lead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from engines.core.lossless_laws import Law
from engines.core.sampling import softmax, to_numpy
from engines.core.tree import DraftTree, depths
from engines.report.events import Choice, Verified


@dataclass(slots=True)
class RowSummary:
    """What a row of logits says.

    Attributes:
        prob: the probability of the token that was asked for.
        top: ids and probabilities of the likeliest tokens, the best first, the lower id first among equals; none that
            is filtered out.
        lead: the difference of the two largest logits, in float32; 0 where there is one only.
    """

    prob: float
    top: list[tuple[int, float]]
    lead: float


def summarise(rows: Sequence[np.ndarray], tokens: Sequence[int], k: int) -> list[RowSummary]:
    """The summaries of a round's rows, made together.

    Args:
        rows: float32 [vocabulary] each, after temperature and filters, writable; in the end they are as they were.
        tokens: one a row, whose probability is asked for; further rows are left out.
        k: how many of the likeliest.
    """
    rows = rows[: len(tokens)]
    table = np.empty((len(rows), len(rows[0])), np.float32)
    tops, below = [], []
    for row, token, shifted in zip(rows, tokens, table):
        ids = _largest(row, max(k, 2))
        np.subtract(row, row[ids[0]], out=shifted)
        tops.append(ids)
        below.append([shifted.item(t) for t in (token, *ids)])
    np.exp(table, out=table)
    found = []
    for (own, *rest), ids, total in zip(below, tops, np.add.reduce(table, axis=1).tolist()):
        lead = 0.0 - rest[1] if len(rest) > 1 else math.inf if table.shape[1] > 1 else 0.0
        found.append(RowSummary(math.exp(own) / total, [(t, math.exp(d) / total) for t, d in zip(ids[:k], rest)], lead))
    return found


def _largest(row: np.ndarray, k: int) -> list[int]:
    """The ids of the ``k`` largest entries above minus infinity, largest first, the lower id first among equals. The
    row is written to on the way, and restored."""
    found: dict[int, float] = {}
    for _ in range(min(k, len(row))):
        token = int(row.argmax())
        value = row.item(token)
        if value == -math.inf:  # all the others are filtered out
            break
        found[token] = value
        row[token] = -math.inf
    for token, value in found.items():
        row[token] = value
    return list(found)


def every_row(
    law: Law, tree: DraftTree, logits: torch.Tensor, position: int, piece: Callable[[int], str]
) -> tuple[Verified, ...]:
    """What the target has at every verified row, the ones that the walk never visits included.

    It costs a softmax a row, so it is made on request only (``Request.detail``).

    Args:
        logits: [1 + nodes, vocabulary], row 0 the root's.
        position: of the token after the root.
        piece: a token's label.
    """
    table, out, rows = to_numpy(logits), [], []
    for index, depth in enumerate([0, *depths(tree.parents)]):
        row, noise = law.sampling.row(table[index]), law.noise(position + depth)
        rows.append(softmax(row))
        token = int((row if noise is None else row + noise).argmax())
        choice = Choice(token, piece(token), float(rows[-1][token]))
        drafted = float(rows[tree.parents[index - 1] + 1][tree.tokens[index - 1]]) if index else None
        out.append(Verified(choice, None if noise is None else float(noise[token]), drafted))
    return tuple(out)
