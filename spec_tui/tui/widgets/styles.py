"""Styles by name, resolved from theme variables once and shared by all widgets that draw their own lines.

Not component classes: a style sheet would work them out for every widget on every change of a class, which costs more
than everything else before the first paint.
"""

from __future__ import annotations

from rich.style import Style
from textual.color import Color, ColorParseError
from textual.widget import Widget

# name -> theme variable, share of it over the background, attributes
INKS: dict[str, tuple[str, float, str]] = {
    "text": ("foreground", 1, ""),
    "strong": ("foreground", 1, "bold"),
    "muted": ("tok-prompt", 1, ""),
    "title": ("primary", 1, "bold"),
    "title-here": ("primary", 1, "bold reverse"),
    "rule": ("border", 1, ""),
    "accent": ("accent", 1, "bold"),
    "good": ("success", 1, "bold"),
    "warn": ("warning", 1, "bold"),
    "bad": ("error", 1, "bold"),
    "lossy": ("error", 1, "bold reverse"),
    "bar": ("primary", 0.75, ""),
    "track": ("border", 1, ""),
    "changed": ("accent", 1, "bold reverse"),
    # lanes of a race; each also has its number
    "lane-1": ("foreground", 1, "bold"),
    "lane-2": ("tok-accept", 1, ""),
    "lane-3": ("tok-fixed", 1, ""),
    "lane-4": ("src-retr", 1, ""),
    "lane-5": ("tok-bonus", 1, ""),
    "lane-6": ("src-output", 1, ""),
    # the token language: outcome
    "accepted": ("tok-accept", 1, ""),
    "corrected": ("tok-fixed", 1, "bold underline"),
    "bonus": ("tok-bonus", 1, "bold underline2"),
    "target": ("foreground", 1, ""),
    "ghost": ("tok-ghost", 1, "strike"),
    "prompt": ("tok-prompt", 1, ""),
    # source
    "by-draft": ("src-draft", 1, ""),
    "by-retrieval": ("src-retr", 1, "italic"),
    "by-prompt": ("src-prompt", 1, "reverse"),
    "by-output": ("src-output", 1, "underline"),
    "by-target": ("src-target", 1, "bold underline"),
    # confidence
    "sure": ("foreground", 1, ""),
    "likely": ("conf-likely", 1, "italic"),
    "unsure": ("conf-unsure", 1, "underline"),
    "guess": ("conf-guess", 1, "bold underline2"),
}


class Inked(Widget):
    """A widget that asks for styles by name; ``forget_ink`` is called when the theme changes."""

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.forget_ink())

    def forget_ink(self) -> None:
        """Drop what was made with the old colours."""
        self.__dict__.pop("_ink", None)
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.forget_ink()

    def ink(self, name: str) -> Style:
        """The style of a name on this widget's background."""
        cache: dict[str, Style] = self.__dict__.setdefault("_ink", {})
        if (style := cache.get(name)) is None:
            style = cache[name] = self._mix(*INKS[name])
        return style

    def _mix(self, variable: str, share: float, attributes: str) -> Style:
        back = self.background_colors[1]
        variables = self.app.theme_variables
        try:
            color = Color.parse(variables.get(variable, ""))
        except ColorParseError:
            color = Color.parse(variables["foreground"])
        if share < 1 and color.ansi is None and back.ansi is None:
            color = back.blend(color, share)
        flags = dict.fromkeys(attributes.split(), True)
        return Style(color=color.rich_color, bgcolor=back.rich_color, **flags)
