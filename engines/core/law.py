"""What every law is asked, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from engines.core.sampling import RowSummary, Sampling, summarise
from engines.core.tree import DraftTree
from engines.report.events import Trial
from engines.request import LAWS

TOP = 3  # of the target's favourites at a position, how many are kept for display


@dataclass(slots=True)
class Verdict:
    """A law's decision on a tree.

    Attributes:
        path: accepted nodes from the root down.
        tokens: what is emitted: the tokens of ``path``, then the target's own.
        rows: for each token the logits [vocabulary] after temperature and filters that it was chosen from, float32.
        looks: for each token what its row says, its ``TOP`` likeliest tokens included.
        gaps: for each token the difference of the two best scores compared; empty where nothing was compared.
        noise: for each token the Gumbel noise that went into its score; empty without noise.
        trials: for each token what was tried at its position; empty for laws that try nothing.
        bias: as in ``engines.report.events.Round``; None for lossless laws.
    """

    path: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    looks: list[RowSummary] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    noise: list[float] = field(default_factory=list)
    trials: list[tuple[Trial, ...]] = field(default_factory=list)
    bias: float | None = None

    def saw(self, row: np.ndarray, token: int) -> None:
        """Note a visited row and the token chosen there."""
        self.rows.append(row)
        self.tokens.append(token)

    def looked(self) -> Verdict:
        """Itself, the walk being over, with ``looks``. Raises RunFailed where the model gave nan or infinity."""
        self.looks = summarise(self.rows, self.tokens, TOP)
        return self


class Law(ABC):
    """What the loop and drafters ask of a law."""

    name: ClassVar[str]

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling

    @property
    def lossless(self) -> bool:
        """Whether the text follows the target's distribution, whatever is drafted."""
        return LAWS[self.name].lossless

    @property
    def draws(self) -> bool:
        """Whether a drafter may draw the nodes of a tree from distributions: the law tries them as they were drawn."""
        return False

    def choice(self, row: np.ndarray, position: int) -> tuple[int, float | None]:
        """For display: the target's token at a position and its noise, from a row [vocabulary] after temperature and
        filters. Where dice decide there is none before they fall: the likeliest."""
        return int(row.argmax()), None

    @abstractmethod
    def judge(self, tree: DraftTree, logits: torch.Tensor, position: int) -> Verdict:
        """Decide. ``logits`` [1 + nodes, vocabulary], row 0 the root's; ``position`` of the first token emitted.

        Raises:
            RunFailed: the model gave nan or infinity.
        """

    def scores(self, logits: torch.Tensor, position: int) -> torch.Tensor:
        """For drafters that rank: logits [rows, vocabulary], all for one position, made comparable to what the target
        will compare; softmax of them is the drafter's belief. Here: warped, without dice."""
        return self.sampling.warp(logits)

    @abstractmethod
    def suggest(self, logits: torch.Tensor, position: int) -> tuple[int, float, np.ndarray | None]:
        """For drafters that write a chain: token, the drafter's belief in it, and the distribution it was drawn from
        (float64 [vocabulary], None where it was not drawn), from logits [vocabulary]."""
