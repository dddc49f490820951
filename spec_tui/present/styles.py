"""The styles of everything that is drawn of a run, by name, and the colours of our themes: for the application, for web
pages and, in part, for plain terminals.

The colours are checked for contrast (at least 4.7 on their backgrounds) and for the common kinds of colour blindness;
what colour says, an attribute says too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from engines.methods import origin_kind, origins
from engines.methods.origins import OriginKind


@dataclass(frozen=True, slots=True)
class Style:
    """How something is drawn.

    Attributes:
        colour: a name of the theme's.
        attributes: words among bold, italic, underline, underline2, strike, reverse.
        share: how much of the colour there is, the rest being background.
        legend: what it means, of the styles of tokens.
    """

    colour: str
    attributes: str = ""
    share: float = 1
    legend: str = ""


STYLES: dict[str, Style] = {
    "text": Style("foreground"),
    "strong": Style("foreground", "bold"),
    "cursor": Style("foreground", "bold reverse"),
    "muted": Style("tok-prompt"),
    "title": Style("primary", "bold"),
    "title-here": Style("primary", "bold reverse"),
    "rule": Style("border"),
    "border": Style("border"),
    "accent": Style("accent", "bold"),
    "good": Style("success", "bold"),
    "warn": Style("warning", "bold"),
    "bad": Style("error", "bold"),
    "lossy": Style("error", "bold reverse"),
    "bar": Style("primary", share=0.75),
    "track": Style("border"),
    "changed": Style("accent", "bold reverse"),
    # Markdown and code, where a token's colours are off
    "markup": Style("tok-prompt"),
    "code": Style("conf-likely"),
    "keyword": Style("secondary", "bold"),
    "string": Style("conf-likely"),
    "comment": Style("tok-prompt", "italic"),
    # lanes of a race; each also has its number
    "lane-1": Style("foreground", "bold"),
    "lane-2": Style("tok-accept"),
    "lane-3": Style("tok-fixed"),
    "lane-4": Style("src-retrieval"),
    "lane-5": Style("tok-bonus"),
    "lane-6": Style("src-output"),
    # the token language: outcome
    "accepted": Style("tok-accept", legend="accepted"),
    "accepted-strong": Style("tok-accept", "bold"),
    "corrected": Style("tok-fixed", "bold underline", legend="corrected by target"),
    "bonus": Style("tok-bonus", "bold underline2", legend="bonus of target"),
    "target": Style("foreground", legend="target, no draft"),
    "ghost": Style("tok-ghost", "strike", legend="rejected draft"),
    "prompt": Style("tok-prompt"),
    # confidence
    "sure": Style("foreground", legend="p ≥ .9"),
    "likely": Style("conf-likely", "italic", legend="p ≥ .6"),
    "unsure": Style("conf-unsure", "underline", legend="p ≥ .3"),
    "guess": Style("conf-guess", "bold underline2", legend="p < .3"),
}


def style_named(name: str) -> Style:
    """The style of a name: one of those above, or ``by-KIND`` of a kind of origin."""
    return STYLES.get(name) or _of_kind(origin_kind(name.removeprefix("by-")))


def all_styles() -> dict[str, Style]:
    """All styles by name, those of kinds of origin last."""
    return STYLES | {f"by-{kind.name}": _of_kind(kind) for kind in (*origins().values(), origin_kind(""))}


@cache
def _of_kind(kind: OriginKind) -> Style:
    return Style(f"src-{kind.hue}", kind.attributes, legend=kind.words)


DARK_TOKENS = {
    "tok-prompt": "#9aa4b2", "tok-accept": "#56B4E9", "tok-fixed": "#E69F00", "tok-bonus": "#F0E442",
    "tok-ghost": "#f46a64", "src-draft": "#56B4E9", "src-retrieval": "#CC79A7", "src-prompt": "#F0E442",
    "src-output": "#43c59e", "src-target": "#E69F00", "conf-likely": "#9fd3c7", "conf-unsure": "#E69F00",
    "conf-guess": "#f46a64",
}
LIGHT_TOKENS = {
    "tok-prompt": "#4b5563", "tok-accept": "#00588a", "tok-fixed": "#7a4b00", "tok-bonus": "#5f5600",
    "tok-ghost": "#a83a00", "src-draft": "#00588a", "src-retrieval": "#8a2f63", "src-prompt": "#5f5600",
    "src-output": "#00664a", "src-target": "#7a4b00", "conf-likely": "#1f5f57", "conf-unsure": "#7a4b00",
    "conf-guess": "#a83a00",
}

DARK = {
    **DARK_TOKENS, "primary": "#56B4E9", "secondary": "#8ea3b8", "accent": "#E69F00", "foreground": "#e4e7eb",
    "background": "#121212", "surface": "#191b1f", "panel": "#23262c", "success": "#43c59e", "warning": "#E69F00",
    "error": "#f46a64", "footer-key-foreground": "#56B4E9", "border": "#3a4049",
}
LIGHT = {
    **LIGHT_TOKENS, "primary": "#00588a", "secondary": "#56606d", "accent": "#7a4b00", "foreground": "#1c2126",
    "background": "#ffffff", "surface": "#f4f5f7", "panel": "#e6e8ec", "success": "#00664a", "warning": "#7a4b00",
    "error": "#a83a00", "footer-key-foreground": "#00588a", "border": "#b3bac4",
}
CONTRAST = {
    **DARK, "primary": "#7fd0ff", "secondary": "#ffffff", "accent": "#ffb52e", "foreground": "#ffffff",
    "background": "#000000", "surface": "#000000", "panel": "#1a1a1a", "success": "#5cf2c0", "warning": "#ffb52e",
    "error": "#ff8a84", "tok-prompt": "#d5dbe3", "tok-accept": "#7fd0ff", "tok-fixed": "#ffb52e",
    "tok-bonus": "#fff45c", "tok-ghost": "#ff8a84", "border": "#ffffff", "footer-key-foreground": "#7fd0ff",
}
