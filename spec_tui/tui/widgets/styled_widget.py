"""What widgets that draw their own lines share: styles by name, resolved from the theme once.

Not component classes: a style sheet would work them out for every widget on every change of a class, which costs more
than everything else before the first paint.
"""

from __future__ import annotations

from rich.style import Style
from textual.color import Color, ColorParseError
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from spec_tui.present.styles import Style as NamedStyle
from spec_tui.present.styles import style_named
from spec_tui.present.token_styles import spans
from spec_tui.tui.border import contained

STAND_OUT = "bold reverse $error"  # of the mark LOSSY, as the style "lossy"


def marked(text: str) -> Content:
    """A text in which the mark LOSSY stands out."""
    return Content.assemble(*((part, STAND_OUT if style == "lossy" else "") for part, style in spans(text, "")))


class StyledWidget(Widget):
    """A widget that asks for styles by name; ``forget_styles`` is called when the theme changes. What it cannot draw
    does not end the application."""

    def __init_subclass__(cls, **kwargs) -> None:
        super().__init_subclass__(**kwargs)
        if "render_lines" in cls.__dict__:
            cls.render_lines = contained(cls.render_lines)

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._strips: dict[int, Strip] = {}  # lines as they were drawn

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self.forget_styles())

    def forget_styles(self) -> None:
        """Drop what was made with the old colours."""
        self.__dict__.pop("_named_styles", None)
        self._strips.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self.forget_styles()

    def style_of(self, name: str) -> Style:
        """The style of a name on this widget's background."""
        cache: dict[str, Style] = self.__dict__.setdefault("_named_styles", {})
        if (style := cache.get(name)) is None:
            style = cache[name] = self._mix(style_named(name))
        return style

    def _mix(self, named: NamedStyle) -> Style:
        back = self.background_colors[1]
        variables = self.app.theme_variables
        try:
            color = Color.parse(variables.get(named.colour, ""))
        except ColorParseError:
            color = Color.parse(variables["foreground"])
        if named.share < 1 and color.ansi is None and back.ansi is None:
            color = back.blend(color, named.share)
        flags = dict.fromkeys(named.attributes.split(), True)
        return Style(color=color.rich_color, bgcolor=back.rich_color, **flags)
