"""When a chain of drafts ends: Draft & Verify's adaptive exit (Zhang et al. 2024, section 3.4). Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.options import Option

EXIT_OPTIONS = (
    Option("num_tokens", 12, "Most tokens drafted a round.", 1, 64),
    Option("exit_start", 0.6, "Drafting stops after a token that the draft gives less than the exit threshold; this is "
           "its first value.", 0, 1),
    Option("exit_target", 0.9, "The threshold rises while less than this share of the drafts is accepted.", 0, 1),
    Option("exit_step", 0.01, "By how much it is to move after a round, before smoothing.", 0, 0.5),
    Option("exit_beta1", 0.5, "Smoothing of the accepted share: how much of the old value stays.", 0, 0.999),
    Option("exit_beta2", 0.9, "Smoothing of the threshold: how much of the old value stays.", 0, 0.999),
)


@dataclass(slots=True)
class AdaptiveExit:
    """The threshold of the drafter's probability below which a chain ends, moved after every round by what became of
    its drafts: up where too few are accepted, else down, unless a chain had ``num_tokens`` drafts.

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
