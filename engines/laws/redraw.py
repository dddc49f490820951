"""The law ``redraw`` in words (``engines.laws.lossy_laws.Redraw``)."""

from __future__ import annotations

from collections.abc import Sequence

from engines.laws.spec import LawSpec, bias_of, one_by_one, trials_of
from engines.report.events import Emitted, Round, Started, Trial
from engines.report.plain_text import LOSSY
from engines.report.run_state import TokenState
from engines.report.wording import p3, quoted

LOSSILY = ("Neither the text nor its distribution is the target's. The bias is the total variation distance between "
           "what this law makes of the token, given the draft, and the target's distribution; it is computed exactly.")


class RedrawSpec(LawSpec):
    """Each path of the tree draws its own tokens; the longest match wins."""

    name = "redraw"
    summary = "a draw for every path of the tree, the longest match wins (the code of REST and DReSD)"
    source = "the public code of REST and DReSD; docs/glossary.md, redraw"
    lossless = False
    text_depends_on_draft = True
    trials_title = f"the draws of the redraw law, {LOSSY}: one for each path through a node; it hits when draw < p"

    def rule(self, started: Started) -> str:
        return "At every row it gives its distribution p; random draws decide which drafts stay."

    def walk(self, event: Round) -> str:
        told = [f"{quoted(event.draft.pieces[t.node])} has p {p3(t.target_prob)}, draw {p3(t.dice)}: "
                f"{'drawn' if t.accepted else 'missed'}" for t in trials_of(event)]
        return (f"{LOSSY}: every path of the tree draws its own tokens, and the longest match wins. "
                f"{one_by_one(told)}." + bias_of(event))

    def more(self, event: Round) -> list[str]:
        return [LOSSILY]

    def own_token(self, last: Emitted) -> list[str]:
        if not last.trials:
            return ["It was drawn from p."]
        return [f"What the paths drew here was discarded, and this token drawn again from p. {LOSSY}."]

    def fate(self, token: TokenState, who: str) -> str:
        if token.kind != "accepted":
            return (f"Every path drew another token here than the one drafted. What they drew was discarded, and this "
                    f"token drawn again: so what was drafted had more than one chance. {LOSSY}.")
        mine = [trial for trial in token.emitted.trials if trial.node == token.emitted.node]
        hits, p = sum(trial.accepted for trial in mine), mine[0].target_prob if mine else 0.0
        drew = f"{hits} of {len(mine)} paths through it drew it" if len(mine) > 1 else "its path drew it"
        return (f"Proposed ({who}), and {drew}, each by a draw of its own: kept. The chance that one does is "
                f"{1 - (1 - p) ** len(mine):.3f} where the target has {p3(p)}, and a miss is drawn again. {LOSSY}.")

    def compared(self, trial: Trial) -> str:
        return f"{p3(trial.dice)} {'<' if trial.accepted else '≥'} {p3(trial.target_prob)}"

    def trials_column(self, event: Round) -> str:
        return "draw < p"

    def trial(self, trial: Trial, before: Sequence[Trial] = ()) -> str:
        return f"p {p3(trial.target_prob)}  draw {p3(trial.dice)}  {'drew it' if trial.accepted else 'missed'}"


SPEC = RedrawSpec()
