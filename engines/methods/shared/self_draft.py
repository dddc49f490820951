"""Self-speculation: the target drafts with some of its own sublayers left out, and checks with all of them.

Weights and KV rows are the target's; the rows of drafts are forgotten before they are verified, in one full forward.
How long a chain gets is decided by Draft & Verify's adaptive exit. Which sublayers are left out is a subclass's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from engines.core.tree import DraftTree
from engines.cost.curve import best_case
from engines.methods.drafter import Drafter, DraftLimits, Outcome, Resources
from engines.methods.shared.adaptive_exit import AdaptiveExit
from engines.methods.shared.chain import Chain, catch_up
from engines.report.events import Layers, Origin

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

_ORIGIN = Origin("draft")


@dataclass(slots=True)
class DraftTimes:
    """What drafting took in the runs before, beside what verification took.

    Attributes:
        forwards, draft_seconds: of drafts.
        priced, verify_seconds: of verification: by t(n), and what it really took.
    """

    forwards: int = 0
    draft_seconds: float = 0.0
    priced: float = 0.0
    verify_seconds: float = 0.0

    @property
    def each(self) -> float:
        """Seconds of a draft forward at the pace at which t(n) was measured; 0 where nothing is known."""
        known = self.forwards and self.verify_seconds > 0
        return self.draft_seconds / self.forwards * self.priced / self.verify_seconds if known else 0.0


class SelfDraft(Drafter):
    """Drafts chains with a part of the target. A subclass sets ``layers``, in ``start`` at the latest.

    Args:
        num_tokens, exit_start, exit_target, exit_step, exit_beta1, exit_beta2: as ``EXIT_OPTIONS``. What the exit has
            learnt is kept from run to run where the text cannot depend on it.

    Raises:
        UsageProblem: the target cannot be run without some of its sublayers.
    """

    layers: Layers

    def __init__(
        self, resources: Resources, *, num_tokens: int, exit_start: float, exit_target: float, exit_step: float,
        exit_beta1: float, exit_beta2: float,
    ) -> None:
        super().__init__(resources)
        self.model: CausalModel = resources.target
        self.sublayers = self.model.sublayers
        self.num_tokens = num_tokens
        exit = AdaptiveExit(exit_start, exit_target, exit_step, exit_beta1, exit_beta2)
        self.exit: AdaptiveExit = resources.memory.setdefault((type(self).__name__, num_tokens, *astuple(exit)), exit)
        self._pace: DraftTimes = resources.memory.setdefault((type(self).__name__, "pace"), DraftTimes())
        self._stopped = ""

    def remark(self) -> str:
        budget, each = self.resources.budget, self._pace.each
        if budget is None or not each or (best := best_case(budget.price, self.num_tokens, lambda n: n * each)) > 1:
            return ""
        return (
            f"drafting cannot pay with what was left out so far: a draft forward took {each / budget.price.at(1):.0%}"
            f" of a full one, so even with every token accepted it would reach x{best:.2f} of autoregressive decoding"
        )

    def _layers(self) -> Layers:
        """The target's layers, nothing left out; those that others need stay."""
        count, free = len(self.sublayers), (self.sublayers.attention, self.sublayers.mlp)
        attention, mlp = (tuple(layer + 1 for layer in range(count) if layer not in can) for can in free)
        return Layers(("",) * count, ("",) * count, attention_stays=attention, mlp_stays=mlp)

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        most = min(self.num_tokens, room.depth, room.nodes)
        chain = Chain(self.resources.law, len(context))
        attention, mlp = (
            frozenset(i for i, rule in enumerate(rules) if rule) for rules in (self.layers.attention, self.layers.mlp)
        )
        self._stopped = ""
        with self.model.skipping(attention, mlp):
            while not self._stopped:
                token, prob = chain.add(
                    self.model.extend(chain.tokens[-1:]) if len(chain) else catch_up(self.model, context)
                )
                self._stopped = self._why(token, prob, len(chain) >= most)
        note = {"draft forwards": len(chain), "exit threshold": round(self.exit.threshold, 4), "stopped": self._stopped}
        return chain.tree(_ORIGIN, note)

    def _why(self, token: int, prob: float, full: bool) -> str:
        """Why the chain ends with this token, "" if it does not."""
        if token in self.resources.end_tokens:
            return "end token"
        if full:
            return "longest"
        return "low confidence" if prob < self.exit.threshold else ""

    def follow(self, outcome: Outcome) -> None:
        if outcome.draft_seconds and len(outcome.tree) and self.resources.budget is not None:
            self._pace.forwards += len(outcome.tree)
            self._pace.draft_seconds += outcome.draft_seconds
            self._pace.verify_seconds += outcome.verify_seconds
            self._pace.priced += self.resources.budget.price.at(1 + len(outcome.tree))
        self.exit.learn(len(outcome.path), len(outcome.tree), len(outcome.tree) == self.num_tokens)


