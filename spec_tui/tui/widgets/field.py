"""One option as a line of a form: name, value, what it means; what is wrong with it while it is wrong."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from engines.errors import UsageProblem
from engines.methods.options import Option
from spec_tui.present.text import LOSSY
from spec_tui.tui.widgets.styled_widget import marked


class Field(Horizontal):
    """Edits an option's value; ``value`` raises UsageProblem where it is out of range."""

    class Explained(Message):
        """The sentence to show for the field that has the focus."""

        def __init__(self, words: str, wrong: bool) -> None:
            super().__init__()
            self.words, self.wrong = words, wrong

    def __init__(self, option: Option, value: Any, default: Any = None, **kwargs) -> None:
        super().__init__(**kwargs)
        self.option, self.default = option, option.default if default is None else default
        self._value = written(value)
        self._complaint = ""

    def compose(self) -> ComposeResult:
        yield Static(self.option.name, classes="name", markup=False)
        yield Input(self._value, select_on_focus=True, compact=True)
        yield Static(self._limits(), classes="range", markup=False)

    @property
    def value(self) -> int | float | bool | str:
        """The checked value. Raises UsageProblem that states the range."""
        return self.option.parse(self.query_one(Input).value.strip())

    def put(self, value: Any) -> None:
        """Show this value."""
        self.query_one(Input).value = written(value)

    def follow(self, default: Any) -> None:
        """Another default: a field that shows the one before takes it."""
        before, self.default = self.default, default
        if self.query_one(Input).value == written(before):
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

    def _limits(self) -> Content:
        """The allowed values, or the mark of a chosen one that is lossy: there is no room for both."""
        chosen = self.query_one(Input).value.strip() if self.is_mounted else self._value
        return marked(LOSSY if chosen in self.option.lossy else limits(self.option))

    def _show(self) -> None:
        self.set_class(bool(self._complaint), "wrong")
        if self.option.lossy:
            self.query_one(".range", Static).update(self._limits())
        if self.has_focus_within:
            default = f" Default {written(self.default)}." if self.default != "" else ""
            words = self._complaint or self.option.help + default
            self.post_message(self.Explained(words, bool(self._complaint)))

    def on_input_changed(self, event: Input.Changed) -> None:
        self.check()

    def on_descendant_focus(self) -> None:
        self._show()


def written(value: Any) -> str:
    """A value as it stands in a form."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def limits(option: Option) -> str:
    """The allowed values in words; a range without a practical end says so."""
    if option.high is not None and option.high > 10**9:
        return f">= {option.low:g}"
    return "" if option.type == "str" and not option.choices else option.range
