"""Keys are handled in the order in which they are typed."""

from __future__ import annotations

from collections import deque
from functools import partial

from textual.app import App
from textual.dom import DOMNode
from textual.events import Event, Key, Paste
from textual.screen import Screen

_PATIENCE = 0.3  # seconds that a key waits for the one before it, which may be lost or start something long


class HasKeysInOrder(App):
    """An application that hands out a key when the one before it has been handled.

    Textual gives each key at once to the widget that has the focus, and looks its binding up when the key has gone up
    from there to the application. When keys come quickly, over a slow connection or while a screen is drawn, it would
    handle some later ones first: letters before a backspace or an enter, and the rest of a word before the letter that
    moved the focus to the prompt. Pastes wait in the same queue. A key that is pressed twice does nothing the second
    time if the first one changes the screen meanwhile.
    """

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._typed: deque[Key | Paste] = deque()  # the first one is being handled
        self._key = ""  # name of the one that was handed out last
        self._twice_on: Screen | None = None  # where, if the one before it was the same

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
        target, before = self.focused or self.screen, self._key
        self._key = getattr(self._typed[0], "key", "")
        self._twice_on = self.screen if self._key == before else None
        try:
            await super().on_event(self._typed[0])
        finally:  # what fails holds up no later key
            await self._follow(self._typed[0], target)

    def on_key(self, event: Key) -> None:
        """A key has gone up to the application, which looks its binding up on the screen that is there now."""
        if self._typed and event is self._typed[0] and self._twice_on not in (None, self.screen):
            event.prevent_default()

    async def _follow(self, event: Event, target: DOMNode | None) -> None:
        """Go where a key goes, behind it: from the widget that got it up to the application."""
        if target is not None and target.call_later(self._follow, event, target.parent):
            return
        if target is None:
            await self._done(event)
        else:  # it was closed
            self.call_later(self._done, event)

    async def _done(self, event: Event) -> None:
        """A key has been handled: the next one is due."""
        if not self._typed or self._typed[0] is not event:  # it was waited for too long
            return
        self._typed.popleft()
        try:
            if self._typed:
                await self._hand_out()
        finally:
            if len(self._typed) > 1:
                self._watch()

    def _watch(self) -> None:
        """Go on with the next key even if this one is not known to be handled in time."""
        self.set_timer(_PATIENCE, partial(self._done, self._typed[0]))
