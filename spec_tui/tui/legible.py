"""Colours of text in themes that are not made for our screens: lighter or darker, where they could hardly be read."""

from __future__ import annotations

from textual.color import BLACK, WHITE, Color
from textual.theme import Theme

from spec_tui.present.styles import DARK_TOKENS, STYLES

LEAST = 4.5
"""The contrast of text, as WCAG 2 asks for."""
BACKGROUNDS = ("background", "surface", "panel")
_FOOTER = ("key-foreground", "description-foreground", "background")
_STEPS = 20


def contrast(one: Color, other: Color) -> float:
    """From 1 (the same) to 21, as in WCAG 2."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def make_legible(theme: Theme, colours: dict[str, str]) -> None:
    """Blend the colours that words are drawn in with white, or black in a light theme, no further than is needed; those
    of the footer's keys with that of its words. A theme's own variables and the terminal's colours stay."""
    if theme.ansi:
        return
    backs = [Color.parse(colours[name]) for name in BACKGROUNDS]
    drawn = {style.colour for style in STYLES.values()} | DARK_TOKENS.keys()  # no method is loaded for this
    for name in drawn - {"border"} - theme.variables.keys():
        colours[name] = _blended(Color.parse(colours[name]), backs, WHITE if theme.dark else BLACK).hex
    key, word, back = (Color.parse(colours[f"footer-{name}"]) for name in _FOOTER)
    colours["footer-key-foreground"] = _blended(key, [back], word).hex


def _blended(colour: Color, backs: list[Color], end: Color) -> Color:
    """The colour with as much of ``end`` as is needed for it to be read on these backgrounds."""
    blends = (colour.blend(end, step / _STEPS) for step in range(_STEPS))
    return next((each for each in blends if all(contrast(each, back) >= LEAST for back in backs)), end)


def _luminance(colour: Color) -> float:
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour.normalized]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), parts))
