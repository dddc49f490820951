"""The law ``rejection`` in words (``engines.core.lossless_laws.Rejection``)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.laws.spec import LawSpec, one_by_one, trials_of
from engines.report.events import Emitted, Round, Started, Trial
from engines.report.run_state import TokenState
from engines.report.wording import counted, p3, quoted


class RejectionSpec(LawSpec):
    """Speculative sampling: the target's distribution, a text for each engine."""

    name = "rejection"
    summary = "speculative sampling (Leviathan, Chen): the target's distribution, but the text depends on the draft"
    brief = "by random draws, same distribution"
    source = "Leviathan et al. 2023, algorithm 1; Chen et al. 2023, modified rejection sampling"
    text_depends_on_draft = True
    trials_title = "the trials of the rejection law, in order: accepted when the random draw < p/q"

    def rule(self, started: Started) -> str:
        return "At every row it gives its distribution p; random draws decide which drafts stay."

    def walk(self, event: Round) -> str:
        told = [self._told(trial, event) for trial in trials_of(event)]
        rule = "A draft is accepted when a random draw is below p/q"
        if point_masses(event):
            rule += ("; these were chosen and not drawn, so to the law each is a point mass, q = 1, whatever the "
                     "drafter gave it")
        return f"{rule}. {one_by_one(told)}."

    def _told(self, trial: Trial, event: Round) -> str:
        return (f"{quoted(event.draft.pieces[trial.node])}: draw {p3(trial.dice)} {'<' if trial.accepted else '≥'} "
                f"{p3(_ratio(trial))} = {p3(trial.target_prob)}/{p3(trial.draft_prob)}, "
                f"{'accepted' if trial.accepted else 'rejected'}")

    def more(self, event: Round) -> list[str]:
        return [f"{counted(len(trials_of(event)), 'trial')} in this round. After a rejection p becomes "
                "norm(max(0, p − q)), and a sibling is tried against that: so the distribution of the text stays the "
                "target's, but the text itself depends on the random draws and on the draft."]

    def own_token(self, last: Emitted) -> list[str]:
        return [f"It was drawn from {'what was left of p after the rejections' if last.trials else 'p'}."]

    def fate(self, token: TokenState, who: str) -> str:
        last, before = token.emitted.trials[-1], len(token.emitted.trials) - 1
        if token.kind == "accepted":
            turn = f", tried after {counted(before, 'other')}" if before else ""
            return (f"Proposed ({who}){turn}; the random draw, {p3(last.dice)}, fell below p/q, "
                    f"{p3(min(1.0, _ratio(last)))}: accepted.")
        return ("The drafts were rejected here; this token was drawn from what the target's distribution has left, "
                "max(0, p - q).")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.dice)} {'<' if trial.accepted else '≥'} {p3(min(1.0, _ratio(trial)))}"

    def trials_column(self, event: Round) -> str:
        return "draw < p/q, q = 1" if point_masses(event) else "draw < p/q"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        again = ", drawn again" if any(other.node == trial.node for other in before) else ""
        return (f"p {p3(trial.target_prob)}  q {p3(trial.draft_prob)}  p/q {min(_ratio(trial), 99):>6.3f}  "
                f"draw {p3(trial.dice)}  {'accepted' if trial.accepted else 'rejected'}{again}")

    def trials_note(self, trials: Sequence[Trial]) -> str:
        if all(trial.draft_prob == 1.0 for trial in trials):
            return "q is 1 where the draft comes without a distribution"
        return "after a rejection p is what q leaves of it" if len(trials) > 1 else ""


def point_masses(event: Round) -> bool:
    """Whether drafts were tried that nobody drew: q is then 1, and not what the drafter gave them."""
    trials = trials_of(event)
    return all(t.draft_prob == 1.0 for t in trials) and any(event.draft.probs[t.node] != 1.0 for t in trials)


def _ratio(trial: Trial) -> float:
    return trial.target_prob / trial.draft_prob if trial.draft_prob else 0.0


SPEC = RejectionSpec()
