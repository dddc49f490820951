"""What drafts of other sizes would bring: the expected tokens and the time of a round, by t(n), the cost of drafting
and the acceptance by depth.

A draft's size is its depth: the tokens of a chain, the levels of a tree. Expectations are of rounds that draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from engines.cost.curve import CostCurve, best_length

_STRENGTH = 4.0  # judgements that the depth before is worth


def chances(tried: Sequence[int], kept: Sequence[int]) -> tuple[float, ...]:
    """For each depth the chance that the draft is accepted there once it is one depth before; empty where nothing was
    judged.

    Where few were judged the estimate leans on the depth before (a beta prior), the first on all depths together.
    ``tried`` and ``kept`` are ``Metrics.depth_tried`` and ``depth_accepted``.
    """
    if not sum(tried):
        return ()
    chance, out = sum(kept) / sum(tried), []
    for depth, count in enumerate(tried):
        chance = ((kept[depth] if depth < len(kept) else 0) + _STRENGTH * chance) / (count + _STRENGTH)
        out.append(chance)
    return tuple(out)


@dataclass(frozen=True)
class SpeedupModel:
    """Rounds of one engine with one target.

    Attributes:
        price: t(n) of the target.
        first, each: seconds of drafting the first depth; of each one further.
        rows: rows to verify for each depth: 1 for a chain.
        most: the deepest draft looked at.
        scale: what verification takes over what ``price`` says.
        other: seconds a round outside of drafting and verification.
        alone: seconds of a round that drafts nothing, where a baseline measured it; None: by ``price``.
        chances: at index d - 1 the chance to be accepted at depth d, given d - 1; the last holds beyond. Empty where
            nothing is known.
    """

    price: CostCurve
    first: float = 0.0
    each: float = 0.0
    rows: float = 1.0
    most: int = 16
    scale: float = 1.0
    other: float = 0.0
    alone: float | None = None
    chances: tuple[float, ...] = ()

    def assuming(self, chance: float) -> SpeedupModel:
        """The same if every depth were accepted with this chance."""
        return replace(self, chances=(chance,))

    def seconds(self, depth: int) -> float:
        """Time of a round with a draft of this depth; 0 drafts nothing."""
        if not depth and self.alone is not None:
            return self.alone
        drafting = self.first + (depth - 1) * self.each if depth else 0.0
        return drafting + self.scale * self.price.at(1 + self.rows * depth) + self.other

    def needs(self, depth: int) -> float:
        """Tokens that a round of this depth must yield to be as fast as rounds that draft nothing."""
        return self.seconds(depth) / self.seconds(0)

    def survival(self, depth: int) -> list[float]:
        """For each depth up to this one the chance that the draft is accepted as far; empty where nothing is known."""
        alive, out = 1.0, []
        for d in range(depth if self.chances else 0):
            alive *= self.chances[min(d, len(self.chances) - 1)]
            out.append(alive)
        return out

    def expected(self, depth: int) -> float:
        """Expected tokens of a round: those accepted, and the target's own. Only where ``chances`` are known."""
        return 1.0 + sum(self.survival(depth))

    def speed_up(self, depth: int) -> float:
        """Expected tokens a second over those of drafting nothing."""
        return self.expected(depth) / self.needs(depth)

    @property
    def best(self) -> int:
        """The depth with the most expected tokens a second; 0 where none beats drafting nothing."""
        return best_length(self.survival(self.most), [self.seconds(d) for d in range(self.most + 1)])

    def acceptance_needed(self, depth: int) -> float | None:
        """The chance a depth at which drafts this deep break even; None where not even 1 is enough."""
        needs = self.needs(depth)
        if needs > depth + 1:
            return None
        low, high = 0.0, 1.0
        for _ in range(30):
            chance = (low + high) / 2
            expected = (1 - chance ** (depth + 1)) / (1 - chance)  # 1 + chance + ... + chance ** depth
            low, high = (low, chance) if expected >= needs else (chance, high)
        return high

    @cached_property
    def pays_from(self) -> float | None:
        """The least acceptance at which drafts of some depth break even; None where nothing can make them faster."""
        needed = [self.acceptance_needed(depth) for depth in range(1, self.most + 1)]
        return min((share for share in needed if share is not None), default=None)

    @property
    def at_best(self) -> float:
        """The speed-up with everything accepted, at the depth where it is largest."""
        return max((1 + depth) / self.needs(depth) for depth in range(1, self.most + 1))
