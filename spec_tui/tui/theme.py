"""Our themes, and the colours of the token language as theme variables.

The values are checked for contrast (at least 4.7 on their backgrounds) and for the common kinds of colour blindness;
what colour says, an attribute says too (see ``marks``).
"""

from __future__ import annotations

from textual.theme import Theme

DARK_TOKENS = {
    "tok-prompt": "#9aa4b2", "tok-accept": "#56B4E9", "tok-fixed": "#E69F00", "tok-bonus": "#F0E442",
    "tok-ghost": "#f46a64", "src-draft": "#56B4E9", "src-retr": "#CC79A7", "src-prompt": "#F0E442",
    "src-output": "#43c59e", "src-target": "#E69F00", "conf-likely": "#9fd3c7", "conf-unsure": "#E69F00",
    "conf-guess": "#f46a64",
}
LIGHT_TOKENS = {
    "tok-prompt": "#4b5563", "tok-accept": "#00588a", "tok-fixed": "#7a4b00", "tok-bonus": "#5f5600",
    "tok-ghost": "#a83a00", "src-draft": "#00588a", "src-retr": "#8a2f63", "src-prompt": "#5f5600",
    "src-output": "#00664a", "src-target": "#7a4b00", "conf-likely": "#1f5f57", "conf-unsure": "#7a4b00",
    "conf-guess": "#a83a00",
}

DARK = Theme(
    name="spec-dark", primary="#56B4E9", secondary="#8ea3b8", accent="#E69F00", foreground="#e4e7eb",
    background="#121212", surface="#191b1f", panel="#23262c", success="#43c59e", warning="#E69F00", error="#f46a64",
    dark=True, variables={**DARK_TOKENS, "footer-key-foreground": "#56B4E9", "border": "#3a4049"},
)
LIGHT = Theme(
    name="spec-light", primary="#00588a", secondary="#56606d", accent="#7a4b00", foreground="#1c2126",
    background="#ffffff", surface="#f4f5f7", panel="#e6e8ec", success="#00664a", warning="#7a4b00", error="#a83a00",
    dark=False, variables={**LIGHT_TOKENS, "footer-key-foreground": "#00588a", "border": "#b3bac4"},
)
CONTRAST = Theme(
    name="spec-contrast", primary="#7fd0ff", secondary="#ffffff", accent="#ffb52e", foreground="#ffffff",
    background="#000000", surface="#000000", panel="#1a1a1a", success="#5cf2c0", warning="#ffb52e", error="#ff8a84",
    dark=True,
    variables={
        **DARK_TOKENS, "tok-prompt": "#d5dbe3", "tok-accept": "#7fd0ff", "tok-fixed": "#ffb52e", "tok-bonus": "#fff45c",
        "tok-ghost": "#ff8a84", "border": "#ffffff", "footer-key-foreground": "#7fd0ff",
    },
)
THEMES = (DARK, LIGHT, CONTRAST)
