"""What a law tried where a token is, as the inspector lists it."""

from __future__ import annotations

from textual.content import Content

from engines.laws import LawSpec
from engines.report.events import Round, Trial
from spec_tui.present.text import visible
from spec_tui.tui.widgets.strip_panel import fit
from spec_tui.tui.widgets.styled_widget import marked

MOST = 12  # trials listed


def lines(law: LawSpec, trials: tuple[Trial, ...], event: Round | None) -> list[Content]:
    """The trials one by one, under a heading."""
    out = [marked(law.trials_title)]
    for number, trial in enumerate(trials[:MOST]):
        known = event is not None and 0 <= trial.node < len(event.draft.pieces)
        piece = visible(event.draft.pieces[trial.node]) if known else "?"
        style = "$tok-accept" if trial.accepted else "strike $tok-ghost"
        out.append(Content.assemble("    ", (fit(piece, 16), style), f" {law.trial(trial, trials[:number])}"))
    if len(trials) > MOST:
        out.append(Content(f"    … {len(trials) - MOST} more"))
    if note := law.trials_note(trials):
        out.append(Content(f"    {note}"))
    return out
