"""What a person can do on a screen, each thing declared once: its keys, slash command, palette entry, help and footer.

A screen or widget lists its ``Action`` objects in ``ACTIONS`` and inherits ``HasActions``. Key bindings, the footer,
the command palette, slash commands and the help page are made from that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from textual.app import SystemCommand
from textual.binding import ActiveBinding, Binding

KEY_NAMES = {
    "left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?", "escape": "esc", "full_stop": ".",
    "comma": ",", "plus": "+", "equals_sign": "=", "minus": "-", "greater_than_sign": ">", "less_than_sign": "<",
    "number_sign": "#", "asterisk": "*", "slash": "/", "shift+right": "shift+→", "shift+left": "shift+←",
    "right": "→", "left": "←", "up": "↑", "down": "↓", "pageup": "page up", "pagedown": "page down",
    **{f"f{n}": f"F{n}" for n in range(1, 13)},
}
"""Textual's names of keys, as they are shown."""


EXAMPLES = "Example prompts, each with what to look for"
BY_OUTCOME = "Colour tokens by outcome (also with rejected drafts), by source, by confidence, or not at all"
"""Help of actions that several screens have."""


def always(host: Any) -> bool:
    """The condition of an action that always applies."""
    return True


def can(capability: str) -> Callable[[Any], bool]:
    """The condition that the engine of a screen's conversation, if it has one, can do something: a field of
    ``Capabilities``."""
    return lambda host: host.session is not None and getattr(host.session.client.capabilities, capability)


def stands(part: Any) -> bool:
    """Whether the screen of a part has not been left: one that was is still there for a moment, without its widgets."""
    return part.is_attached and part.screen in part.app.screen_stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing that can be done.

    Attributes:
        id: unique name, "screen.what".
        run: Textual's action string, for example "view" or "panel('tree')".
        label: one or two words, for the footer.
        help: a sentence without its full stop, for the help page, tooltips and the palette.
        keys: names of the keys that start it while its screen or widget has the focus, between commas.
        anywhere: names of the keys that start it wherever the focus is, in an input, too.
        digits: digit keys; each gives its digit to ``run`` as the argument.
        footer: whether the footer shows it.
        palette: entry in the command palette; None makes one of the label, "" leaves it out.
        command: slash command without the slash, "" for none.
        opens: whether it opens a screen of the chat's; the palette offers it on every screen.
        choices: what may follow the slash command and is then the argument of ``run``.
        when: whether the action applies, given its screen or widget. Actions that share a method share the condition.
        offered: whether it would do something now, given the same. The footer leaves out what would not; its key says
            why not.
    """

    id: str
    run: str
    label: str
    help: str
    keys: str = ""
    anywhere: str = ""
    digits: range = range(0)
    footer: bool = False
    palette: str | None = None
    command: str = ""
    opens: bool = False
    choices: tuple[str, ...] = ()
    when: Callable[[Any], bool] = always
    offered: Callable[[Any], bool] = always

    @property
    def method(self) -> str:
        """Name of the action's method, without "action_" and without arguments."""
        return self.run.partition("(")[0]

    @property
    def key_words(self) -> str:
        """The keys as the help page names them."""
        if self.digits:
            return f"{self.digits[0]}-{self.digits[-1]}"
        keys = ",".join(filter(None, (self.keys, self.anywhere))).split(",")
        return " or ".join(KEY_NAMES.get(key, key) for key in keys)

    def bindings(self) -> Iterator[Binding]:
        """Textual's key bindings."""
        for digit in self.digits:
            yield Binding(str(digit), f"{self.run}({digit})", str(digit), id=f"{self.id}-{digit}", show=False,
                          tooltip=self.help)
        footer = self.footer
        for keys, priority in ((self.keys, False), (self.anywhere, True)):
            if keys:
                first = keys.partition(",")[0]
                shown = "^" + first[5:] if first.startswith("ctrl+") else KEY_NAMES.get(first)
                yield Binding(keys, self.run, self.label, id=self.id + ".anywhere" * priority, show=footer,
                              key_display=shown, priority=priority, tooltip=self.help)
                footer = False


class HasActions:
    """Gives a screen, widget or application the keys, conditions and palette entries of its ``ACTIONS``.

    Attributes:
        ACTIONS: those of the class itself.
        PALETTE: goes before the labels that become palette entries.
        actions: those of the class and of the classes it inherits key bindings from.
    """

    ACTIONS: ClassVar[tuple[Action, ...]] = ()
    PALETTE: ClassVar[str] = ""
    actions: ClassVar[tuple[Action, ...]] = ()

    def __init_subclass__(cls, inherit_bindings: bool = True, **kwargs: Any) -> None:
        own = cls.__dict__.get("ACTIONS", ())
        if own:
            cls.BINDINGS = [binding for action in own for binding in action.bindings()]
        cls.actions = (*(super(cls, cls).actions if inherit_bindings else ()), *own)
        super().__init_subclass__(inherit_bindings=inherit_bindings, **kwargs)

    @property
    def word_here(self) -> str:
        """The word of the glossary for what the cursor is on; "" where there is none."""
        return ""

    def call_after_refresh(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        """As Textual's, which would also call what draws on a screen that was left before the refresh."""
        return super().call_after_refresh(lambda: callback(*args, **kwargs) if stands(self) else None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether an action applies now."""
        return all(found.when(self) for found in self.actions if found.method == action)

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """Of a screen: the keys that apply now, without those of the footer that would do nothing."""
        found = super().active_bindings
        for key, (node, binding, enabled, tooltip) in found.items():
            own = (a for a in getattr(node, "actions", ()) if binding.show and binding.id in (a.id, f"{a.id}.anywhere"))
            if not all(action.offered(node) for action in own):
                found[key] = ActiveBinding(node, replace(binding, show=False), enabled, tooltip)
        return found

    def palette(self, run: Callable[[str], Any] | None = None) -> Iterator[SystemCommand]:
        """Entries of the command palette, of the actions that apply now: name, keys, and what they do. ``run``: starts
        an action that opens a screen, from elsewhere; only those are listed then."""
        for action in self.actions:
            name = f"{self.PALETTE}{action.label.lower()}" if action.palette is None else action.palette
            if name and self.check_action(action.method, ()) and (run is None or action.opens):
                keys = f"{action.key_words}: " if action.key_words else ""
                yield SystemCommand(name, keys + action.help, partial(run or self.run_action, action.run))
