"""An input that handles keys in the order in which they were typed."""

from __future__ import annotations

from textual import events
from textual.widgets import Input


class KeysInOrder:
    """A mixin for widgets: keys that have a binding are handled in the order typed. Textual passes them up to the
    application first, so that letters typed later are handled before them (a word before its enter, a digit before the
    backspace)."""

    async def on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class LineInput(KeysInOrder, Input):
    """An input of one line."""
