"""What a law tried where a token stands, in words: the dice of ``rejection`` and ``redraw``, the threshold of
``typical``."""

from __future__ import annotations

from textual.content import Content

from engines.report.events import Round, Trial
from engines.report.run_state import TokenState
from spec_tui.present.text import LOSSY, visible
from spec_tui.present.token_styles import marked
from spec_tui.tui.widgets.strip_panel import fit

MOST = 12  # trials listed

_HEADINGS = {
    "rejection": "the dice of the rejection law, in the order tried: accepted when dice < p/q",
    "redraw": f"the dice of the redraw law, {LOSSY}: a throw for each path through a node; it hits when dice < p",
    "typical": f"typical acceptance, {LOSSY}: no dice, a draft is kept when p > threshold",
}


def fate(law: str, token: TokenState, who: str) -> str:
    """One sentence on what became of the draft here; ``who`` proposed the token."""
    return {"redraw": _redrawn, "typical": _typical}.get(law, _thrown)(token, who)


def lines(law: str, trials: tuple[Trial, ...], event: Round | None) -> list[Content]:
    """The trials one by one, under a heading."""
    law = law if law in _HEADINGS else "rejection"
    out = [marked(_HEADINGS[law])]
    for number, trial in enumerate(trials[:MOST]):
        repeat = law == "rejection" and any(t.node == trial.node for t in trials[:number])
        out.append(_line(law, trial, event, repeat))
    if len(trials) > MOST:
        out.append(Content(f"    … {len(trials) - MOST} more"))
    if law == "rejection" and all(trial.draft_prob == 1.0 for trial in trials):
        out.append(Content("    q is 1 where the draft comes without a distribution"))
    elif law == "rejection" and len(trials) > 1:
        out.append(Content("    after a rejection p is what q leaves of it"))
    return out


def _thrown(token: TokenState, who: str) -> str:
    last, before = token.emitted.trials[-1], len(token.emitted.trials) - 1
    if token.kind == "accepted":
        ratio = min(1.0, last.target_prob / last.draft_prob) if last.draft_prob else 1.0
        turn = f", tried after {before} other{'s' * (before > 1)}" if before else ""
        return f"Proposed ({who}){turn}; the dice, {last.dice:.3f}, fell below p/q, {ratio:.3f}: accepted."
    return ("The dice refused what was drafted; this token was drawn from what the target's distribution has left, "
            "max(0, p - q).")


def _redrawn(token: TokenState, who: str) -> str:
    if token.kind != "accepted":
        return (f"Every path drew another token here than the one drafted. What they drew was thrown away, and this "
                f"token drawn anew: so what was drafted had more than one chance. {LOSSY}.")
    mine = [trial for trial in token.emitted.trials if trial.node == token.emitted.node]
    hits, p = sum(trial.accepted for trial in mine), mine[0].target_prob if mine else 0.0
    drew = f"{hits} of {len(mine)} paths through it drew it" if len(mine) > 1 else "its path drew it"
    return (f"Proposed ({who}), and {drew}, each by a draw of its own: kept. The chance that one does is "
            f"{1 - (1 - p) ** len(mine):.3f} where the target has {p:.3f}, and a miss is drawn anew. {LOSSY}.")


def _typical(token: TokenState, who: str) -> str:
    if token.kind != "accepted":
        return ("Nothing that was drafted here passed the threshold; this token was drawn from the target's "
                "distribution.")
    tried = next((trial for trial in token.emitted.trials if trial.node == token.emitted.node), None)
    p, bound = (tried.target_prob, tried.dice) if tried else (token.prob, 0.0)
    return (f"Proposed ({who}); the target gives it {p:.3f}, above the threshold {bound:.3f}: kept, as if it had "
            f"probability 1. {LOSSY}.")


def _line(law: str, trial: Trial, event: Round | None, repeat: bool) -> Content:
    piece = visible(event.draft.pieces[trial.node]) if event and 0 <= trial.node < len(event.draft.pieces) else "?"
    style = "$tok-accept" if trial.accepted else "strike $tok-ghost"
    p, q, dice = trial.target_prob, trial.draft_prob, trial.dice
    if law == "redraw":
        words = f" p {p:.3f}  dice {dice:.3f}  {'drew it' if trial.accepted else 'missed'}"
    elif law == "typical":
        words = f" p {p:.3f}  threshold {dice:.3f}  {'kept' if trial.accepted else 'refused'}"
    else:
        words = f" p {p:.3f}  q {q:.3f}  p/q {min(p / q if q else 0.0, 99):>6.3f}  dice {dice:.3f}"
        words += f"  {'accepted' if trial.accepted else 'rejected'}{', drawn again' if repeat else ''}"
    return Content.assemble("    ", (fit(piece, 16), style), words)
