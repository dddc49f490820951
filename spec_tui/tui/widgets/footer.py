"""The keys of what is on top, at the foot of a screen."""

from __future__ import annotations

from textual import widgets
from textual.app import ComposeResult
from textual.widgets._footer import FooterKey

from spec_tui.tui.widgets.wrap import cells

_KEPT, _PALETTE = ("escape", "f1"), "-command-palette"


class Footer(widgets.Footer):
    """Textual's, composed again only when its keys have changed: news of them comes several times a keystroke. Where
    there is no room for all keys the later ones give way, except those that leave and help."""

    _composed: tuple | None = None

    def compose(self) -> ComposeResult:
        """Textual's keys, as compact as they will be: each would look for its styles twice more to become so."""
        found = [*super().compose()]
        for widget in found:
            compact = self.compact or widget.has_class(_PALETTE)
            widget.set_reactive(FooterKey.compact, compact)
            widget.set_class(compact, "-compact", update=False)
        spare = [widget for widget in found if widget.key not in _KEPT and not widget.has_class(_PALETTE)]
        while spare and sum(map(_columns, found)) > self.app.size.width:
            found.remove(spare.pop())
        yield from found

    def on_resize(self) -> None:
        self.call_after_refresh(self.recompose)

    async def recompose(self) -> None:
        """Show the keys that there are now."""
        keys = [
            (binding, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show or binding.key == self.app.COMMAND_PALETTE_BINDING
        ]
        if (self.app.size.width, keys) != self._composed:
            self._composed = self.app.size.width, keys
            await super().recompose()


def _columns(key: FooterKey) -> int:
    """How wide a key is, with the blanks around it."""
    return cells(key.key_display) + cells(key.description) + 3
