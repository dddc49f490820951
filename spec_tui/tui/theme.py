"""Our themes, for Textual; their colours are in ``spec_tui.present.styles``."""

from __future__ import annotations

from dataclasses import fields

from textual.theme import Theme

from spec_tui.present.styles import CONTRAST, DARK, LIGHT

_OWN = {field.name for field in fields(Theme)}  # the other colours are variables


def _theme(name: str, colours: dict[str, str], dark: bool = True) -> Theme:
    own = {key: colour for key, colour in colours.items() if key in _OWN}
    variables = {key: colour for key, colour in colours.items() if key not in _OWN}
    return Theme(name=name, dark=dark, variables=variables, **own)


THEMES = (_theme("spec-dark", DARK), _theme("spec-light", LIGHT, dark=False), _theme("spec-contrast", CONTRAST))
