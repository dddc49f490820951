"""One option as a line of a form: name, value, what it means; what is wrong with it while it is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input, Select, Static, Switch

from engines.errors import UsageProblem
from engines.methods.options import Option
from spec_tui.present.text import LOSSY
from spec_tui.session.settings import written
from spec_tui.tui.widgets.clean_input import CleanInput
from spec_tui.tui.widgets.styled_widget import marked


class _YesNo(Switch, inherit_bindings=False):
    """A switch of a form, in which enter applies the form. It says its value, which needs no colour."""

    BINDINGS: ClassVar = [Binding("space", "toggle_switch", "Change")]

    def render(self) -> str:
        return "● yes" if self.value else "○ no"

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return len("● yes")


class Field(Horizontal):
    """Edits an option: one of its choices by a select, a yes or no by a switch, the rest as text.

    ``value`` raises UsageProblem where it is out of range.
    """

    DEFAULT_CSS = """
    Field Select { width: 24; height: 1; }
    Field Select > SelectCurrent { background: $panel; padding: 0 1; height: 1; }
    Field Select:focus > SelectCurrent { background: $primary 25%; }
    Field Switch { border: none; height: 1; padding: 0; background: $panel; }
    Field Switch:focus { border: none; background: $primary 25%; }
    """

    @dataclass
    class Explained(Message):
        """The sentence to show for the field that has the focus."""

        words: str
        wrong: bool

    @dataclass
    class Changed(Message):
        """Another value, sound or not."""

        field: Field

    def __init__(self, option: Option, value: Any, default: Any = None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.option, self.default = option, option.default if default is None else default
        self._complaint = ""
        self.editor: Input | Select | Switch
        if option.choices and not option.several:
            offered = [(marked(f"{word} {LOSSY}" if word in option.lossy else word), word) for word in option.choices]
            self.editor = Select(offered, value=value, allow_blank=False, compact=True)
        elif isinstance(option.default, bool):
            self.editor = _YesNo(value, animate=False)
        else:
            self.editor = CleanInput(written(value), select_on_focus=True, compact=True)

    def compose(self) -> ComposeResult:
        yield Static(self.option.name, classes="name", markup=False)
        yield self.editor
        yield Static(limits(self.option), classes="range", markup=False)

    @property
    def value(self) -> int | float | bool | str:
        """The checked value. Raises UsageProblem that states the range."""
        value = self.editor.value
        return self.option.parse(value.strip() if isinstance(value, str) else value)

    def put(self, value: Any) -> None:
        self.editor.value = written(value) if isinstance(self.editor, Input) else value

    def follow(self, default: Any) -> None:
        """Another default: a field that shows the one before takes it."""
        before, self.default = self.default, default
        if self.editor.value in (before, written(before)):
            self.put(default)

    def check(self) -> bool:
        """Show whether the value is right."""
        try:
            _ = self.value
            self._complaint = ""
        except UsageProblem as error:
            self._complaint = error.hint
        self._show()
        return not self._complaint

    def complain(self, words: str) -> None:
        """Show a complaint that only the whole form can know."""
        self._complaint = words
        self._show()

    def _show(self) -> None:
        self.set_class(bool(self._complaint), "wrong")
        if self.has_focus_within:
            default = f" Default {written(self.default)}." if self.default != "" else ""
            words = self._complaint or self.option.help + default
            self.post_message(self.Explained(words, bool(self._complaint)))

    @on(Input.Changed)
    @on(Select.Changed)
    @on(Switch.Changed)
    def _changed(self) -> None:
        self.check()
        self.post_message(self.Changed(self))

    def on_descendant_focus(self) -> None:
        self._show()


def limits(option: Option) -> str:
    """The allowed values in words; a range without a practical end says so, a select and a switch show theirs."""
    if option.high is not None and option.high > 10**9:
        return f">= {option.low:g}"
    return "" if option.type in ("str", "bool") else option.range
