"""The law ``typical`` in words (``engines.laws.lossy_laws.Typical``)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.laws.redraw import LOSSILY
from engines.laws.spec import LawSpec, bias_of, one_by_one, trials_of
from engines.report.events import Emitted, Round, Started, Trial
from engines.report.plain_text import LOSSY
from engines.report.run_state import TokenState
from engines.report.wording import p3, quoted


class TypicalSpec(LawSpec):
    """Medusa's typical acceptance."""

    name = "typical"
    summary = "keeps drafts that the target finds likely enough (Medusa)"
    source = "Medusa (Cai et al. 2024), typical acceptance"
    lossless = False
    text_depends_on_draft = True
    trials_title = f"typical acceptance, {LOSSY}: no random draw, a draft is kept when p > threshold"

    def rule(self, started: Started) -> str:
        return "At every row it gives its distribution p, and with it a threshold for drafts."

    def walk(self, event: Round) -> str:
        told = [f"{quoted(event.draft.pieces[t.node])} has p {p3(t.target_prob)}, threshold {p3(t.dice)}: "
                f"{'kept' if t.accepted else 'refused'}" for t in trials_of(event)]
        return (f"{LOSSY}: a draft is kept where the target finds it likely enough, without a random draw; the longest "
                f"path wins. {one_by_one(told)}." + bias_of(event))

    def more(self, event: Round) -> list[str]:
        return [LOSSILY]

    def own_token(self, last: Emitted) -> list[str]:
        return ["It was drawn from p."]

    def fate(self, token: TokenState, who: str) -> str:
        if token.kind != "accepted":
            return ("Nothing that was drafted here passed the threshold; this token was drawn from the target's "
                    "distribution.")
        tried = next((trial for trial in token.emitted.trials if trial.node == token.emitted.node), None)
        p, bound = (tried.target_prob, tried.dice) if tried else (token.prob, 0.0)
        return (f"Proposed ({who}); the target gives it {p3(p)}, above the threshold {p3(bound)}: kept, as if it had "
                f"probability 1. {LOSSY}.")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.target_prob)} {'>' if trial.accepted else '≤'} {p3(trial.dice)}"

    def trials_column(self, event: Round) -> str:
        return "p > threshold"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        return f"p {p3(trial.target_prob)}  threshold {p3(trial.dice)}  {'kept' if trial.accepted else 'refused'}"


SPEC = TypicalSpec()
