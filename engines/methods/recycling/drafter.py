"""Token Recycling: a table of each token's likeliest successors, read as a tree.

Source: Luo et al. 2024, "Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token
Recycling", and its published tree of 80 nodes. Every verified row teaches the successors of the token that it read, the
rows of rejected drafts too. Differences: a token that was never read has no successors here (there: eight times token
0). With ``budget=auto`` a successor is as likely as those of its rank came true so far, the tree has the likeliest
nodes, and the price decides how many are verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources
from engines.methods.recycling import RECYCLED, RecyclingNote
from engines.methods.shared.ranked_trees import Below, RankedToken, best_first, of_ranks
from engines.report.events import Origin

if TYPE_CHECKING:
    import torch

PUBLISHED = tuple(path for paths in (
    "0 1 2 3 4 5 6 7",
    "00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70",
    "000 001 002 003 004 005 006 007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500",
    "0000 0001 0002 0003 0004 0010 0011 0020 0030 0040 0100 0200 1000 2000 3000",
    "00000 00001 00002 00010 00020 00100 01000 10000",
    "000000 000001 000100",
) for path in paths.split())
"""The published tree "2.2.2": for each node the ranks on its path, the likeliest successor being 0."""

_PRIOR = (0.4, 0.12, 0.06, 0.04, 0.03, 0.02, 0.02, 0.01)  # chance of each rank before anything came, assumed
_STRENGTH = 8.0  # tokens that it is worth
_FADE = 0.995  # of what was counted, a token
_BLOCK = 64  # of a row of logits, searched by its largest


class HitRates:
    """How often the token that came was the successor of each rank, of the tokens that had successors."""

    def __init__(self) -> None:
        self.tried, self.hits = 0.0, [0.0] * len(_PRIOR)

    def count(self, rank: int | None) -> None:
        """A token came; its rank among its predecessor's successors, None where it was not among them."""
        self.tried *= _FADE
        self.hits = [hits * _FADE for hits in self.hits]
        self.tried += 1
        if rank is not None:
            self.hits[rank] += 1

    def rates(self) -> list[float]:
        """The chance of each rank."""
        return [(hits + _STRENGTH * prior) / (self.tried + _STRENGTH) for hits, prior in zip(self.hits, _PRIOR)]


class Recycling(Drafter):
    """The table, kept from run to run as far as ``Resources.memory`` is."""

    def __init__(self, resources: Resources, *, budget: str, k: int, nodes: int, depth: int) -> None:
        super().__init__(resources, budget)
        self.k, self.nodes, self.depth = k, nodes, depth
        self.table: dict[int, list[int]] = resources.memory.setdefault(("successors", k), {})
        self.seen: HitRates = resources.memory.setdefault(("hit rates of successors", k), HitRates())

    def start(self, outcome: Outcome) -> None:
        self._read([outcome.context[outcome.position - 1]], outcome.logits)

    def follow(self, outcome: Outcome) -> None:
        if self.budget is not None and self.budget.resting:
            return
        before = outcome.context[outcome.position - 1]
        for token in outcome.verdict.tokens:
            if (known := self.table.get(before)) is not None:
                self.seen.count(known.index(token) if token in known else None)
            before = token
        self._read([outcome.context[outcome.position - 1], *outcome.tree.tokens], outcome.logits)

    def _read(self, tokens: Sequence[int], logits: torch.Tensor) -> None:
        """Remember the successors of the tokens that the rows read; of a token in several rows those of the last."""
        self.table.update(zip(tokens, likeliest(logits, self.k).tolist()))

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        tree = DraftTree(
            origins=[Origin(RECYCLED.name)],
            note=RecyclingNote(table=len(self.table), hit_rate=round(self.seen.hits[0] / self.seen.tried, 3)
                               if self.seen.tried else None),
        )
        depth, nodes = min(self.depth, limits.depth), min(self.nodes, limits.nodes)
        rates = self.seen.rates()
        root, below = (context[-1], 0), successors(self.table, rates, depth)
        found = best_first(root, below) if self.budget else of_ranks(PUBLISHED, root, below)
        for token, parent, chance in islice(found, nodes):
            tree.add(token, parent, chance, 0)
        return self.worth_verifying(tree)


def successors(table: Mapping[int, Sequence[int]], rates: Sequence[float], depth: int) -> Below:
    """The candidates of a token at a level: its successors in the table, by the chance of each rank."""

    def below(place: tuple[int, int]) -> list[RankedToken]:
        before, level = place
        known = table.get(before, ()) if level < depth else ()
        return [RankedToken(token, rate, (token, level + 1)) for token, rate in zip(known, rates)]

    return below


def likeliest(logits: torch.Tensor, k: int) -> torch.Tensor:
    """The ids [rows, k] of the k largest logits [rows, vocabulary] of each row, the largest first.

    A row is searched by blocks: its k largest lie in the k blocks with the largest maxima, and a maximum is found many
    times faster than an order.
    """
    import torch

    rows, width = logits.shape
    k, number = min(k, width), width // _BLOCK
    if number <= k:
        return logits.topk(k, -1).indices
    blocks = logits[:, : number * _BLOCK].reshape(rows, number, _BLOCK)
    chosen = blocks.amax(-1).topk(k, -1).indices
    values = blocks.gather(1, chosen[..., None].expand(rows, k, _BLOCK)).flatten(1)
    ids = (chosen[..., None] * _BLOCK + torch.arange(_BLOCK, device=logits.device)).flatten(1)
    rest = torch.arange(number * _BLOCK, width, device=logits.device).expand(rows, -1)
    values, ids = torch.cat([values, logits[:, number * _BLOCK :]], -1), torch.cat([ids, rest], -1)
    return ids.gather(1, values.topk(k, -1).indices)
