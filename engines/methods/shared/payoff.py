"""Whether drafting with a part of the target is faster: the cost of a draft's forward pass as a share of a full one,
how often the drafts agree, and the agreement at which they would break even, all from one run.

Plain data: needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engines.cost.speedup_model import SpeedupModel
from engines.report.events import Round
from engines.report.metrics import Metrics

LONGEST = 12  # drafts looked at: those of Draft & Verify


@dataclass(frozen=True, slots=True)
class Payoff:
    """What leaving out layers did in a run.

    Attributes:
        fraction: time of a draft forward over that of a whole one of a single row. Removed layers save what they take;
            the embedding, the head and the choice of the token stay.
        kept, judged: drafted tokens that the target agreed to, of those it judged (what hangs below a mismatch was
            never judged).
        forecast: chains of any length at these costs and this agreement.
    """

    fraction: float
    kept: int
    judged: int
    forecast: SpeedupModel

    @property
    def agreement(self) -> float:
        """kept / judged."""
        return self.kept / self.judged

    @property
    def needed(self) -> float | None:
        """The least agreement a token at which chains of some length break even; None where even 1 is not enough.

        A chain of k drafts yields 1 + a + ... + a^k tokens at agreement a, and takes k draft forwards and one forward
        over k + 1 rows. Where verifying more rows costs no more, k = 1 is the first to be faster, at a = ``fraction``.
        """
        return self.forecast.pays_from

    @property
    def best(self) -> int:
        """The length of chain with the most expected tokens a second at this agreement; 0 where none is faster."""
        return self.forecast.best


def payoff(
    metrics: Metrics, rounds: Iterable[Round], longest: int = LONGEST, alone: float | None = None
) -> Payoff | None:
    """The payoff of a run that drafts chains with a part of its target; None before anything was judged, or where t(n)
    is not known.

    Args:
        metrics, rounds: of the same run. A round's note says how many draft forwards it took; without it there was one
            a drafted token.
        longest: the longest chain looked at.
        alone: seconds of a round that drafts nothing, where a baseline measured it.
    """
    kept, judged = sum(metrics.depth_accepted), sum(metrics.depth_tried)
    forwards = sum(draft_forwards(event) for event in rounds)
    if metrics.price is None or not judged or not forwards:
        return None
    found = metrics.forecast(SpeedupModel(metrics.price, most=longest, alone=alone), forwards)
    if found is None:
        return None
    return Payoff(found.each / (found.scale * found.price.at(1)), kept, judged, found.assuming(kept / judged))


def draft_forwards(event: Round) -> int:
    """How many forwards drafting took in a round."""
    return event.draft_forwards or len(event.draft.tokens)
