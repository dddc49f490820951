"""The token language: which style a token has in which view, and what the legend says about it.

Two questions must not share one colour, so there is one view for each: what became of a token (outcome, without or with
the rejected ones), who proposed it (source), how sure the target was (confidence). Every style is a colour *and* an
attribute.
"""

from __future__ import annotations

from collections.abc import Iterable

from engines.methods import origin_kind, origins, what_drafts
from engines.report.run_state import RunState, TokenState
from spec_tui.present.styles import all_styles
from spec_tui.present.text import LOSSY

OUTCOME, REJECTED_KEPT = "outcome", "rejected"
FATES = (OUTCOME, REJECTED_KEPT)
VIEWS = {
    OUTCOME: "Tokens by outcome: accepted, corrected, bonus",
    REJECTED_KEPT: "Tokens by outcome, and rejected drafts kept in the text, struck through",
    "source": "Tokens by source: who proposed them",
    "confidence": "Tokens by confidence: how sure the target was",
    "plain": "Tokens without colours",
}
"""What a text shows, in words, in the order of the key that goes through them (``next_view``). How rejected tokens stay
in the text says ``spec_tui.present.rejected``."""

ACCEPTED, REJECTED, UNJUDGED, ROOT, CHOSEN, PRUNED = "●✗○◌◐✂"
FATE_MARKS = {"accepted": (ACCEPTED, "accepted"), "rejected": (REJECTED, "ghost"), "unreached": (UNJUDGED, "muted")}
PRESENT, ABSENT = "■□"
HERE, BOOKMARK = "◆▼"
BUSY, WAITING, FAILED, UNKNOWN = "▶…!—"
GOES_ON = "↳"
GLYPHS = {
    ACCEPTED: "a drafted token that was accepted", REJECTED: "a bad result: rejected, wrong, BUG, slower",
    UNJUDGED: "a drafted token that verification did not reach or try", ROOT: "the token from which a draft tree grows",
    CHOSEN: "what the target chose instead of the draft", PRUNED: "retrieved, but cut from the tree",
    PRESENT: "in use: a sublayer that runs, a layer that a head reads, a row that is kept, what is chosen",
    ABSENT: "not in use: left out, forgotten, not chosen",
    HERE: "where you are", BOOKMARK: "a bookmark", "✓": "a good result: right, identical, faster",
    "≈": "equal within rounding or noise", "≠": "different, which is allowed",
    BUSY: "at work: answering, measuring, playing", "‖": "paused", WAITING: "waiting, or unfinished",
    FAILED: "failed, or a warning", UNKNOWN: "not known, or not measured", "▸": "the token that was chosen",
    GOES_ON: "a line of code continues here: it is too long for the width",
}
"""What each mark means; no mark means two things."""


def next_view(view: str) -> str:
    """The view after this one; after the last one the first."""
    names = list(VIEWS)
    return names[(names.index(view) + 1) % len(names)]


def style_of(token: TokenState, view: str) -> str:
    """Style name of a token in a view."""
    if view in FATES:
        return token.kind
    if view == "source":
        return f"by-{origin_kind(token.source).name}"
    return confidence(token.prob) if view == "confidence" else "text"


def confidence(prob: float | None) -> str:
    """Step of the heat scale for a probability; plain text where it is not known."""
    if prob is None:
        return "text"
    if prob >= 0.9:
        return "sure"
    if prob >= 0.6:
        return "likely"
    return "unsure" if prob >= 0.3 else "guess"


def present(tokens: Iterable[TokenState], view: str) -> set[str]:
    """Style names that occur among these tokens in a view."""
    return {style_of(token, view) for token in tokens if token.text}


def spans(text: str, style: str) -> list[tuple[str, str]]:
    """(text, style name) of a text in this style in which the mark LOSSY stands out."""
    first, *rest = text.split(LOSSY)
    parts = [(first, style)]
    for part in rest:
        parts += [(LOSSY, "lossy"), (part, style)]
    return [part for part in parts if part[0]]


def legend(names: set[str], view: str, runs: Iterable[RunState] = ()) -> list[tuple[str, str]]:
    """(style name, words) of what is present in these runs, in the order of the language; nothing for the plain
    view."""
    if view == "plain":
        return []
    runs, words = tuple(runs), {name: style.legend for name, style in all_styles().items() if style.legend}
    if runs and all(run.metrics.messages for run in runs):
        words["target"] = "of the server"
    for kind in origins().values():
        drafters = dict.fromkeys(what_drafts(run) for run in runs if run.metrics.sources.get(kind.name))
        if kind.drafter and drafters:
            words[f"by-{kind.name}"] = ", ".join(drafters)
    return [(name, said) for name, said in words.items() if name in names]
