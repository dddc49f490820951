"""What drafting while the target verifies would gain: a forecast from what a drafter guessed in a recorded run.

Usually drafter and target take turns. While the target verifies, the drafter could already draft what comes next, for
a few of the ways in which verification may end: each is a number of accepted tokens and the target's own token after
them. Where the one that comes true is among those prepared, the next draft is ready at once, and a round takes as long
as the slower of the two; where it is not, the draft is made afterwards as usual. Both are on machines of their own, so
that neither slows the other down, and preparing several contexts takes as long as preparing one.

Sources: PEARL (Liu et al. 2024), which prepares one, that all is accepted; SSD (speculative speculative decoding, or
Saguaro, 2026), which prepares several, the likeliest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from engines.cost.curve import CostCurve

PREPARED = (1, 2, 4, 8, 16, 32)
"""How many contexts are prepared in forecasts."""
_LONGEST = 16  # tokens of a chain
BEYOND = 1 << 20
"""The rank of a token that the drafter did not have among its guesses."""
Ranks = Sequence[int | None]
"""For each token of a text the rank it had among the drafter's guesses at its place, from 1; None where it did not
guess."""


@dataclass(frozen=True, slots=True)
class Overlapped:
    """Chains of ``length`` tokens with ``prepared`` contexts.

    Attributes:
        rounds: that the text was cut into; ``hits``: after how many of them the next context was among those prepared.
        tokens: that these rounds yield.
        turns, overlapped: seconds of all of them, taking turns and overlapping.
        alone: seconds of a token without drafts.
    """

    length: int
    prepared: int
    rounds: int
    hits: int
    tokens: int
    turns: float
    overlapped: float
    alone: float

    @property
    def gain(self) -> float:
        """Tokens a second over those of taking turns."""
        return self.turns / self.overlapped

    @property
    def speed_up(self) -> float:
        """Tokens a second over those of drafting nothing."""
        return self.tokens * self.alone / self.overlapped


def widest(ranks: Ranks) -> int:
    """The largest rank that was seen, 1 at least: a chain has one guess a place."""
    return max((rank for rank in ranks if rank is not None and rank < BEYOND), default=1)


def likeliest(ranks: Ranks, length: int, count: int) -> frozenset[tuple[int, int]]:
    """The ``count`` likeliest ends of a round, as (accepted tokens, rank of the token after them), by how often each
    rank came in this text."""
    known, most = [rank for rank in ranks if rank is not None], widest(ranks)
    share = {rank: known.count(rank) / max(1, len(known)) for rank in range(1, most + 1)}
    ends = [(kept, rank) for kept, rank in product(range(length + 1), share) if rank > 1 or kept == length]
    return frozenset(sorted(ends, key=lambda end: (-(share[1] ** end[0]) * share[end[1]], -end[0]))[:count])


def forecasts(ranks: Ranks, price: CostCurve, step: float) -> list[Overlapped]:
    """The best length of chain for each number of prepared contexts, arguments as of ``forecast``. Ranks of chains tell
    of one prepared context only."""
    out = []
    for prepared in PREPARED if widest(ranks) > 1 else PREPARED[:1]:
        found = [one for length in range(1, _LONGEST + 1)
                 if (one := forecast(ranks, length, prepared, price, step)) is not None]
        if found:
            out.append(max(found, key=lambda one: one.tokens / one.overlapped))
    return out


def forecast(ranks: Ranks, length: int, prepared: int, price: CostCurve, step: float) -> Overlapped | None:
    """The text again in chains of this length, counted round by round; None where it is too short for one.

    Args:
        ranks: of the text's tokens in order. Rounds that come to a place without a guess do not count.
        price: t(n) of the target; ``step``: seconds of a forward pass of what drafts.
    """
    ready, rounds, hits, tokens, at = likeliest(ranks, length, prepared), 0, 0, 0, 0
    while at < len(ranks):
        kept = 0
        while kept < length and at + kept < len(ranks) and ranks[at + kept] == 1:
            kept += 1
        end = at + kept
        if end < len(ranks) and ranks[end] is not None:
            rounds, tokens, hits = rounds + 1, tokens + kept + 1, hits + ((kept, ranks[end]) in ready)
        at = end + 1
    if not rounds:
        return None
    drafting, verifying = length * step, price.at(length + 1)
    missed = (rounds - hits) * (drafting + verifying)
    return Overlapped(length, prepared, rounds, hits, tokens, rounds * (drafting + verifying),
                      hits * max(drafting, verifying) + missed, price.at(1))
