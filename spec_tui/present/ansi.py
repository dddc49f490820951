"""The token language on a plain terminal: what became of each token, in colours, and in attributes that stay
where colours are off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, get_args

from engines.report.events import Emitted, Kind
from spec_tui.present.styles import STYLES
from spec_tui.present.text import dumb, sanitise

# Of the terminal's own colours, so they are readable on its background. Both kinds that the target put right are
# yellow; one underline or two tells them apart, with colour and without.
_COLOURS = {"accepted": "36", "corrected": "33", "bonus": "33", "ghost": "31"}
_ATTRIBUTES = {"bold": "1", "underline": "4", "underline2": "21", "strike": "9"}
_RESET = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class FateStyle:
    """How an answer is written to a stream.

    Attributes:
        marks: fates are marked with escape sequences.
        colour: there are colours among the marks.
        exact: text is written as it is; else what could steer a terminal is made visible.
    """

    marks: bool
    colour: bool
    exact: bool

    @classmethod
    def of(cls, stream: IO[str], environ: Mapping[str, str]) -> FateStyle:
        """For a terminal: marked and made safe. For a pipe: the exact text, as data, unless FORCE_COLOR asks
        for marks. NO_COLOR leaves the attributes."""
        terminal = stream.isatty()
        marks = (terminal and not dumb(environ)) or environ.get("FORCE_COLOR", "0") not in ("", "0")
        return cls(marks, marks and not environ.get("NO_COLOR"), not (terminal or marks))

    def text(self, tokens: Iterable[Emitted], gone: Mapping[int, Sequence[str]] | None = None) -> str:
        """Tokens as one string for the stream; every mark is closed again. ``gone``: labels of the draft tokens that
        were rejected before a token, by its index among these; they are written only where marks tell them from the
        text."""
        gone = gone if gone is not None and self.marks else {}
        return "".join(self._struck(gone.get(index, ())) + self._paint(token.text, token.kind)
                       for index, token in enumerate(tokens))

    def legend(self, rejected: bool = False) -> str:
        """One line that names the marks, each in its own style."""
        names = (*get_args(Kind), *["ghost"] * rejected)
        return "   ".join(self._paint(STYLES[name].legend, name) for name in names)

    def _struck(self, labels: Sequence[str]) -> str:
        """A branch that was rejected; the blank before it carries no line."""
        text = "".join(labels)
        word = text.lstrip(" ")
        return text[: len(text) - len(word)] + self._paint(word, "ghost")

    def _paint(self, text: str, style: str) -> str:
        text = text if self.exact else sanitise(text)
        codes = [_ATTRIBUTES[name] for name in STYLES[style].attributes.split()]
        codes += [_COLOURS[style]] if self.colour and style in _COLOURS else []
        return f"\x1b[{';'.join(codes)}m{text}{_RESET}" if self.marks and codes and text else text
