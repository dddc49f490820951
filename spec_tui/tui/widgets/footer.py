"""The keys of what is on top, at the foot of a screen."""

from __future__ import annotations

from textual import widgets
from textual.app import ComposeResult
from textual.widgets._footer import FooterKey


class Footer(widgets.Footer):
    """Textual's, composed again only when its keys have changed: news of them comes several times a keystroke."""

    _composed: list[tuple] | None = None

    def compose(self) -> ComposeResult:
        """Textual's keys, as compact as they will be: each would look for its styles twice more to become so."""
        for widget in super().compose():
            if isinstance(widget, FooterKey):
                compact = self.compact or widget.has_class("-command-palette")
                widget.set_reactive(FooterKey.compact, compact)
                widget.set_class(compact, "-compact", update=False)
            yield widget

    async def recompose(self) -> None:
        """Show the keys that there are now."""
        keys = [
            (binding, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show or binding.key == self.app.COMMAND_PALETTE_BINDING
        ]
        if keys != self._composed:
            self._composed = keys
            await super().recompose()
