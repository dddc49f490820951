"""Keys in the order in which they were typed, and an input that takes them so."""

from __future__ import annotations

from textual import events
from textual.widgets import Input


class KeysInOrder:
    """A part of widgets: they act on keys that have a binding in their turn. Textual lets these go up to the
    application first, and letters typed after them would overtake them (enter before a word, backspace after the next
    one)."""

    async def on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return


class LineInput(KeysInOrder, Input):
    """An input of one line."""
