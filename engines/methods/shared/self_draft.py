"""Self-speculation: the target drafts with some of its own sublayers left out, and checks with all of them.

Weights and KV rows are the target's; the rows of drafts are forgotten before they are verified, in one full forward.
How long a chain gets is decided by Draft & Verify's adaptive exit. Which sublayers are left out is a subclass's choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.curve import CostCurve
from engines.cost.speedup_model import SpeedupModel
from engines.methods import note_of
from engines.methods.drafter import Drafter, Resources
from engines.methods.notes import Note, labelled
from engines.methods.options import Option
from engines.methods.origins import DRAFT
from engines.methods.shared import explain
from engines.methods.shared.explain import Words
from engines.methods.shared.predictor import Chain, ModelPredictor
from engines.methods.shared.stop_rules import TOP, stop_option
from engines.report.events import Layers, Origin, Round
from engines.report.plain_text import one_line
from engines.report.run_state import RunState
from engines.report.wording import counted, joined, listed, ms

if TYPE_CHECKING:
    from engines.model.causal_model import CausalModel

_ORIGIN = Origin(DRAFT.name)
_RULES = {
    "cosine": "their cosine (changes too little)", "interval": "the interval (every m-th)",
    "both": "cosine and interval", "search": "a fixed set (layers=)",
}

EXIT_OPTIONS = (
    Option("num_tokens", 12, "Maximum number of tokens drafted per round.", 1, 64),
    stop_option(TOP, "the exit threshold"),
    Option("exit_start", 0.6, "First value of the exit threshold; the token that falls below it is drafted too.", 0, 1),
    Option("exit_target", 0.9, "The threshold rises while less than this share of the drafts is accepted.", 0, 1),
    Option("exit_step", 0.01, "How far it moves after a round, before smoothing.", 0, 0.5),
    Option("exit_beta1", 0.5, "Smoothing of the accepted share: how much of the old value stays.", 0, 0.999),
    Option("exit_beta2", 0.9, "Smoothing of the threshold: how much of the old value stays.", 0, 0.999),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDraftNote(Note):
    """Attributes:
    exit_threshold: how sure the drafter had to stay, or the chain ended.
    stopped: why the chain ended.
    """

    exit_threshold: float | None = labelled("exit threshold")
    stopped: str | None = labelled("stopped")


@dataclass(slots=True)
class AdaptiveExit:
    """The threshold of the drafter's sureness (``stop_rules``) below which a chain ends, moved after every round by
    what became of its drafts: up where too few are accepted, else down, unless a chain had ``num_tokens`` drafts.

    Attributes:
        threshold: now.
        target, step, beta1, beta2: the constants of the published code.
        accepted: the smoothed share of accepted drafts; begins at 0, so that the threshold first rises.
    """

    threshold: float
    target: float
    step: float
    beta1: float
    beta2: float
    accepted: float = 0.0

    def learn(self, accepted: int, drafted: int, longest: bool) -> None:
        """A round's drafts were judged; ``longest``: there were ``num_tokens``, whatever else ended the chain."""
        if not drafted:
            return
        self.accepted = self.beta1 * self.accepted + (1 - self.beta1) * accepted / drafted
        moved = self.threshold
        if self.accepted < self.target:
            moved += self.step
        elif not longest:
            moved -= self.step
        self.threshold = min(1.0, max(0.0, self.beta2 * self.threshold + (1 - self.beta2) * moved))


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
    """Drafts chains with a part of the target. A subclass sets ``layers``, in ``start`` at the latest. ``num_tokens``,
    ``stop``, ``exit_start``, ``exit_target``, ``exit_step``, ``exit_beta1``, ``exit_beta2``: as ``EXIT_OPTIONS``. What
    the exit has learnt is kept from run to run where the text cannot depend on it, for each ``choice``: the options
    that say what is left out. Raises UsageProblem: the target cannot be run without some of its sublayers."""

    layers: Layers
    draws_chains = True

    def __init__(
        self, resources: Resources, *, num_tokens: int, stop: str, exit_start: float, exit_target: float,
        exit_step: float, exit_beta1: float, exit_beta2: float, choice: tuple = (),
    ) -> None:
        super().__init__(resources)
        self.model: CausalModel = resources.target
        self.predictor = ModelPredictor(self.model, resources.vocab_size)
        self.sublayers = self.model.sublayers
        self.num_tokens, self.stop = num_tokens, stop
        exit = AdaptiveExit(exit_start, exit_target, exit_step, exit_beta1, exit_beta2)
        part = type(self).__name__, choice
        self.exit: AdaptiveExit = resources.memory.setdefault((*part, num_tokens, stop, *astuple(exit)), exit)
        self._pace: DraftTimes = resources.memory.setdefault((*part, "pace"), DraftTimes())
        self._stopped = ""

    def remark(self) -> str:
        budget, each = self.resources.budget, self._pace.each
        if budget is None or not each:
            return ""
        if (best := SpeedupModel(budget.price, each, each, most=self.num_tokens).at_best) > 1:
            return ""
        return (
            f"drafting cannot be faster with what was left out so far: a draft forward pass took "
            f"{each / budget.price.at(1):.0%} of the time of a full one, so even with every token accepted it would "
            f"reach {best:.2f}x of autoregressive decoding"
        )

    def _layers(self) -> Layers:
        """The target's layers, nothing left out; those that others need stay."""
        count, free = len(self.sublayers), (self.sublayers.attention, self.sublayers.mlp)
        attention, mlp = (tuple(layer + 1 for layer in range(count) if layer not in can) for can in free)
        return Layers(("",) * count, ("",) * count, attention_stays=attention, mlp_stays=mlp)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        most = min(self.num_tokens, limits.depth, limits.nodes)
        chain = Chain(self.predictor, self.resources.law, context, self.stop)
        attention, mlp = (
            frozenset(i for i, rule in enumerate(rules) if rule) for rules in (self.layers.attention, self.layers.mlp)
        )
        self._stopped = ""
        with self.model.skipping(attention, mlp):
            while not self._stopped:
                token, _ = chain.grow()
                self._stopped = self._why(token, chain.sureness, len(chain) >= most)
        return chain.tree(_ORIGIN, SelfDraftNote(
            draft_forwards=len(chain), exit_threshold=round(self.exit.threshold, 4), stopped=self._stopped
        ))

    def _why(self, token: int, sureness: float, full: bool) -> str:
        """Why the chain ends with this token, "" if it does not."""
        if token in self.resources.end_tokens:
            return "end token"
        if full:
            return "longest"
        return "low confidence" if sureness < self.exit.threshold else ""

    def follow(self, outcome: Outcome) -> None:
        if outcome.draft_seconds and len(outcome.tree) and self.resources.budget is not None:
            self._pace.forwards += len(outcome.tree)
            self._pace.draft_seconds += outcome.draft_seconds
            self._pace.verify_seconds += outcome.verify_seconds
            self._pace.priced += self.resources.budget.price.at(1 + len(outcome.tree))
        self.exit.learn(len(outcome.verdict.path), len(outcome.tree), len(outcome.tree) == self.num_tokens)


def explain_self_draft(run: RunState, event: Round, deep: bool) -> Words:
    """Paragraphs on a draft that a part of the target made (``MethodSpec.explain``)."""
    layers = run.prefilled.layers if run.prefilled is not None else None
    if layers is None:
        return explain.draft(run, event, deep)
    less = sum(rule != "" for rule in layers.attention), sum(rule != "" for rule in layers.mlp)
    forwards, price = event.draft_forwards, run.started.price
    cost = f"{counted(forwards, 'such forward pass')} took" if forwards else "It took"
    each = event.draft_seconds / forwards / CostCurve(price).at(1) if forwards and price and event.draft_seconds else 0
    long = f": a pass took {each:.2f} times as long as one of the whole target" if each else ""
    does = (f"it leaves out {less[0]} attention and {less[1]} MLP sublayers, which makes it less work and less accurate"
            if any(less) else "none is left out, so a pass for the draft costs what one of the target costs")
    words = [f"The target drafts for itself: of its {counted(len(layers.attention), 'layer')} {does}. It wrote "
             f"{listed(event.draft.pieces)}. {cost} {ms(event.draft_seconds)}{long}."]
    if not deep:
        return words
    by = Counter(rule for rule in (*layers.attention, *layers.mlp) if rule)
    if by:
        why = joined(f"{counted(count, 'sublayer')} by {_RULES.get(rule, rule)}" for rule, count in by.items())
        words.append(f"Left out: {why}.")
    note = note_of(run.started, event)
    if (bound := getattr(note, "exit_threshold", None)) is not None:
        words.append(f"It goes on while it is at least as sure as γ = {bound:g}, a threshold that follows how much was "
                     f"accepted before; here it stopped by: {one_line(note.stopped or '?', 40)}.")
    if layers.alpha is not None:
        cosines = [c for c in layers.attention_cosine if c is not None]
        words.append(f"C_l is the cosine of the residual stream before and after a sublayer, over {layers.positions} "
                     f"positions of the context: from {min(cosines, default=0):.3f} to {max(cosines, default=0):.3f} "
                     f"here; attention from α = {layers.alpha} on is left out"
                     + (f", but not in the last {counted(layers.n, 'layer')}." if layers.n else "."))
    return words
