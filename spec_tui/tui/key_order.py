"""Keys are handled in the order in which they are typed."""

from __future__ import annotations

from collections import deque

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key, Paste

_PATIENCE = 0.3  # seconds that a key waits for the one before it, where that was lost or an action takes long


class HasKeysInOrder(App):
    """An application that hands out a key when the one before it has been handled.

    Textual gives each key at once to the widget that has the focus, and looks its binding up when the key has gone up
    from there to the application. Of keys that come quickly, by a slow connection or while a screen is drawn, later
    ones would be handled first, by whoever had the focus then: letters before a backspace or an enter, and the rest of
    a word before the letter that moved the focus to the prompt. What is pasted waits likewise.
    """

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._typed: deque[Key | Paste] = deque()  # the first one is being handled

    async def on_event(self, event: Event) -> None:
        if not isinstance(event, Key | Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._typed.append(event)
        if len(self._typed) == 1:
            await self._hand_out()
        elif len(self._typed) == 2:
            self._watch()

    async def _hand_out(self) -> None:
        holder = self.focused or self.screen
        await super().on_event(self._typed[0])
        await self._follow(self._typed[0], holder)

    async def _follow(self, event: Event, holder: DOMNode | None) -> None:
        """Take the way of a key, behind it: from who got it up to the application."""
        if holder is not None and holder.call_later(self._follow, event, holder.parent):
            return
        if holder is None:
            await self._done(event)
        else:  # it was closed
            self.call_later(self._done, event)

    async def _done(self, event: Event) -> None:
        if not self._typed or self._typed[0] is not event:  # it has been given up
            return
        self._typed.popleft()
        if self._typed:
            await self._hand_out()
        if len(self._typed) > 1:
            self._watch()

    def _watch(self) -> None:
        """Go on with the next key even where the end of this one is not seen in time."""
        self.set_timer(_PATIENCE, lambda event=self._typed[0]: self._done(event))
