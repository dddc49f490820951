"""What the target says at every verified row, the ones that the walk never visits included. It costs a softmax a row,
so it is made on request only (``Request.detail``)."""

from __future__ import annotations

import torch

from engines.core.sampling import softmax, to_numpy
from engines.core.tree import DraftTree
from engines.detokenizer import Detokenizer
from engines.laws import Law
from engines.report.events import Choice, Verified


def every_row(
    law: Law, tree: DraftTree, logits: torch.Tensor, position: int, words: Detokenizer
) -> tuple[Verified, ...]:
    """One entry a row of ``logits`` [1 + nodes, vocabulary]; ``position`` is that of the token after the root."""
    table = to_numpy(logits)
    out, rows, depths = [], [], [0, *tree.depths()]
    for index, depth in enumerate(depths):
        row = law.sampling.row(table[index])
        probs = softmax(row)
        rows.append(probs)
        token, noise = law.choice(row, position + depth)
        drafted = float(rows[tree.parents[index - 1] + 1][tree.tokens[index - 1]]) if index else None
        out.append(Verified(Choice(token, words.piece(token), float(probs[token])), noise, drafted))
    return tuple(out)
