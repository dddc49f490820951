"""Help: what the marks mean, every key, every command; made from the bindings themselves."""

from __future__ import annotations

from functools import partial
from textwrap import wrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from spec_tui.tui import slash
from spec_tui.tui.screens.modal import Box, SpecModal

MARKS = (
    ("accepted", "$tok-accept", "drafted, and the target agrees"),
    ("corrected", "bold underline $tok-fixed", "the draft was wrong here; this is the target's token"),
    ("bonus", "bold uu $tok-bonus", "the whole draft was right; one more token of the target's own for free"),
    ("rejected", "strike $tok-ghost", "drafted and thrown away; shown behind the text while it streams"),
)
GLYPHS = "● accepted   ✗ rejected   ◐ what the target chose   ◌ where the tree grows from   ✂ retrieved, but pruned"
LAYERS = ("■ drafts run it   ▣ one of the last n   left out: c cosine, i interval, b both, s search   "
          "next: □ runs, C goes")
LETTERS = "D draft model   P copied from the prompt   O copied from the answer   R datastore   T target   DR both"
NUMBERS = (
    ("M", "tokens a target forward gives on average; autoregressive decoding is exactly 1"),
    ("accepted", "share of the drafted tokens that were kept"),
    ("tokens/s", "by the engine's own clock, prefill apart; drawing is never in it"),
    ("✓ ≈ ✗", "what an audit (a) found: all tokens are the target's own choice; a tie within rounding; a BUG"),
    ("t(n)", "time of a forward that verifies n rows, measured when the model is loaded"),
    ("needs, makes", "tokens a round must yield to be as fast as autoregressive decoding; those it did yield"),
    ("×", "against autoregressive decoding with the same model and sampling, measured with b in this sitting"),
)


class HelpScreen(SpecModal[None]):
    """All keys, commands and marks."""

    CSS_PATH: ClassVar = ["modal.tcss", "help.tcss"]
    BINDINGS: ClassVar = [Binding("f1,question_mark,q", "close", "Close", id="help.close", show=False, tooltip="Close")]

    def compose(self) -> ComposeResult:
        with Box("help", "esc closes"), VerticalScroll(id="scroll"):
            yield Static("", id="text", markup=False)

    def on_mount(self) -> None:
        self.query_one("#scroll").focus()

    def on_resize(self) -> None:
        self.call_after_refresh(self._lay_out)

    def _lay_out(self) -> None:
        text = self.query_one("#text", Static)
        text.update(help_text(text.size.width or 90))


def help_text(width: int) -> Content:
    """The whole page, wrapped to a width."""
    _row = partial(row, total=width)
    lines = [_head("marks")]
    lines += [_row(name, words, style) for name, style, words in MARKS]
    lines += [_row("in the tree", GLYPHS), _row("in the layers", LAYERS), _row("proposed by", LETTERS), Content("")]
    lines += [_head("numbers"), *[_row(name, words) for name, words in NUMBERS], Content("")]
    for title, bindings in _bindings():
        lines += [_head(title)]
        lines += [_row(_keys(b), b.tooltip) for b in bindings]
        lines.append(Content(""))
    lines.append(_head("commands in the prompt"))
    lines += [_row(f"/{name} {argument}", words, width=34) for name, (argument, words) in slash.COMMANDS.items()]
    lines += [Content(""), Content("Nothing you type and nothing a model writes leaves this machine. No telemetry.")]
    return Content("\n").join(lines)


def _bindings():
    from spec_tui.tui.app import SpecTui
    from spec_tui.tui.screens.chat_actions import ChatActions
    from spec_tui.tui.screens.data import DataScreen
    from spec_tui.tui.screens.lesson import LessonScreen
    from spec_tui.tui.screens.race_actions import RaceActions
    from spec_tui.tui.screens.step_actions import StepActions
    from spec_tui.tui.screens.step_live import LiveStep
    from spec_tui.tui.widgets.layers_panel import LayersPanel
    from spec_tui.tui.widgets.prompt_box import PromptBox
    from spec_tui.tui.widgets.token_cursor import TokenCursor

    palette = Binding("ctrl+p", "", "", tooltip="Command palette: every action by name, themes")
    anywhere = [b for b in ChatActions.BINDINGS if b.key.startswith(("ctrl", "f1", "f6", "f7", "esc"))]
    yield "anywhere", [*SpecTui.BINDINGS, palette, *anywhere]
    yield "prompt", PromptBox.BINDINGS
    yield "text and panels", [*TokenCursor.BINDINGS, *[b for b in ChatActions.BINDINGS if b not in anywhere]]
    yield "datastores", DataScreen.BINDINGS
    yield "layers", LayersPanel.BINDINGS
    race = [b for b in RaceActions.BINDINGS if not b.key.isdigit()]
    yield "race", [*race, Binding("1-9", "", "", tooltip="The lane of this number")]
    digits = [b for b in StepActions.BINDINGS if b.key.isdigit()]
    step = [b for b in StepActions.BINDINGS if b not in digits]
    yield "step", [*step, Binding("0-9", "", "", tooltip=digits[0].tooltip), *LiveStep.BINDINGS]
    lesson = [b for b in LessonScreen.BINDINGS if not b.key.isdigit()]
    yield "lessons", [*lesson, Binding("0-9", "", "", tooltip="A choice, or a digit of the number guessed")]


def _keys(binding: Binding) -> str:
    if binding.key_display and "," not in binding.key:
        return binding.key_display
    names = {"left_square_bracket": "[", "right_square_bracket": "]", "question_mark": "?", "escape": "esc"}
    return " or ".join(names.get(k, k) for k in binding.key.split(","))


def _head(text: str) -> Content:
    return Content.assemble((text, "bold $primary"))


def row(name: str, words: str, style: str = "bold", width: int = 24, total: int = 90) -> Content:
    """A name and what it means, the meaning wrapped beside it."""
    parts = wrap(words, max(20, total - width - 2)) or [""]
    space = " " * (width - len(name)) if len(name) < width else "\n" + " " * (width + 2)
    return Content.assemble("  ", (name, style), space, ("\n" + " " * (width + 2)).join(parts))
