"""The keys of what is on top, at the foot of a screen."""

from __future__ import annotations

from textual import widgets
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets._footer import FooterKey

from spec_tui.present.text import cells
from spec_tui.tui.actions import stands

_KEPT, _PALETTE = ("escape", "f1", "ctrl+q"), "-command-palette"
_Shown = tuple[Binding, bool, str]
"""A binding, whether it is enabled, its tooltip."""


class Footer(widgets.Footer):
    """Textual's footer, which updates its widgets in place: bindings change several times a keystroke, and mounting new
    widgets takes many times as long. Where there is no room for all keys, the last ones are left out, except those that
    leave and help."""

    _keys: tuple[int, list[_Shown], list[_Shown]] | None = None

    def compose(self) -> ComposeResult:
        """Nothing yet: ``recompose`` adds the keys when the bindings are known."""
        return ()

    def on_resize(self) -> None:
        self.call_after_refresh(self.recompose)

    async def recompose(self) -> None:
        """Show the keys that there are now."""
        if not stands(self):
            return
        others: dict[str, _Shown] = {}  # the first key of each action
        palette: list[_Shown] = []
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if binding.show:
                others.setdefault(binding.action, (binding, enabled, tooltip))
            if binding.key == self.app.COMMAND_PALETTE_BINDING:
                palette = [(binding, enabled, tooltip)]
        keys = self.app.size.width, [*others.values()], palette
        if keys != self._keys:
            self._keys = keys
            room = self.app.size.width - sum(map(self._columns, palette))
            await self._show(self._that_fit([*others.values()], room), palette=False)
            await self._show(palette, palette=True)

    def _that_fit(self, keys: list[_Shown], room: int) -> list[_Shown]:
        """The keys without the last ones, where they need more columns."""
        spare = [shown for shown in keys if shown[0].key not in _KEPT]
        while spare and sum(map(self._columns, keys)) > room:
            keys.remove(spare.pop())
        return keys

    async def _show(self, keys: list[_Shown], palette: bool) -> None:
        """Update the widgets of the palette's key or of the others; mount or remove some where their number changes."""
        there = [key for key in self.query(FooterKey) if key.has_class(_PALETTE) == palette]
        for key, (binding, enabled, tooltip) in zip(there, keys):
            key.key, key.key_display, key.description = binding.key, self._display(binding), binding.description
            key.action, key._disabled = binding.action, not enabled
            key.tooltip = tooltip or binding.description
            key.set_class(not enabled, "-disabled")
            key.refresh(layout=True)
        await self.remove_children(there[len(keys):])
        await self.mount_all(self._key(*shown, palette) for shown in keys[len(there):])

    def _key(self, binding: Binding, enabled: bool, tooltip: str, palette: bool) -> FooterKey:
        """A widget for a key. It is made compact before it is mounted: later this would apply its styles twice more."""
        key = FooterKey(binding.key, self._display(binding), binding.description, binding.action, disabled=not enabled,
                        tooltip=tooltip or binding.description, classes=_PALETTE if palette else "")
        key.set_reactive(FooterKey.compact, palette)
        key.set_class(palette, "-compact", update=False)
        return key

    def _display(self, binding: Binding) -> str:
        return self.app.get_key_display(binding)

    def _columns(self, shown: _Shown) -> int:
        """How wide a key is, with the blanks around it."""
        return cells(self._display(shown[0])) + cells(shown[0].description) + 3
