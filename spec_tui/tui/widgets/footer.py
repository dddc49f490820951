"""The keys of what is on top, at the foot of a screen."""

from __future__ import annotations

from textual import widgets


class Footer(widgets.Footer):
    """Textual's, composed again only when its keys have changed: news of them comes several times a keystroke."""

    _composed: list[tuple] | None = None

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
