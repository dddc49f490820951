"""The lines of an answer as Markdown means them, while it is written: code, headings, items of a list.

A line is read as it grows, and one that has ended never changes. The text stays whole, marks and all: every token of it
can be looked at. What a line is says how it is wrapped, and how it is coloured where its tokens' colours are off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spec_tui.present.syntax import Language, coloured, language_of
from spec_tui.present.token_styles import GOES_ON

LONGEST_SPAN = 200
"""Characters between two marks of emphasis; what is written can change the colours of so many before it."""

_FENCE = re.compile(r" *(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(?: |$)")
_ITEM = re.compile(r" *(?:[-*+]|\d{1,3}[.)]) +(?:\[[ xX]\] +)?|[ >]*> ?")
_INLINE = re.compile(
    rf"(`+)(?P<code>[^`].{{0,{LONGEST_SPAN}}}?)(?<!`)\1(?!`)"
    rf"|(\*\*|__)(?P<strong>[^ *_].{{0,{LONGEST_SPAN}}}?)(?<! )\3")

Piece = tuple[str, str]
"""Text, style name."""


class TextLine:
    """A line of an answer, up to its line break.

    Attributes:
        text: as far as it is written.
        fence: what closes the code that it is in, "" outside of code.
        language: of that code, None where none is known.
        opened: what a line of code before left open: the quotes of a long string, a comment.
    """

    __slots__ = ("_pieces", "fence", "language", "opened", "text")

    def __init__(self, fence: str = "", language: Language | None = None, opened: str = "") -> None:
        self.text, self.fence, self.language, self.opened = "", fence, language, opened
        self._pieces: tuple[str, list[Piece]] | None = None

    @property
    def kind(self) -> str:
        """text, heading, item, code, or fence: the line above code or below."""
        if self.fence:
            return "fence" if self._closes else "code"
        if _FENCE.match(self.text):
            return "fence"
        if _HEADING.match(self.text):
            return "heading"
        return "item" if _ITEM.match(self.text) else "text"

    @property
    def _closes(self) -> bool:
        found = _FENCE.match(self.text)
        return found is not None and found[1].startswith(self.fence) and not found[2].strip()

    @property
    def hang(self) -> str:
        """What the rows below the first one begin with, where the line is wrapped."""
        blanks = len(self.text) - len(self.text.lstrip(" "))
        if self.kind == "code":
            return f"{' ' * blanks}{GOES_ON} "
        found = _ITEM.match(self.text)
        return " " * (len(found[0]) if found is not None else blanks)

    def next(self) -> TextLine:
        """The line after this one."""
        if self.kind == "code":
            return TextLine(self.fence, self.language, self._coloured()[1])
        found = None if self.fence else _FENCE.match(self.text)
        return TextLine(found[1], language_of(found[2])) if found is not None else TextLine()

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The text between these places in quiet colours."""
        if self._pieces is None or self._pieces[0] != self.text:
            self._pieces = self.text, self._styled()
        at = 0
        for text, style in self._pieces[1]:
            part = text[max(0, start - at) : max(0, stop - at)]
            if part:
                yield part, style
            at += len(text)
            if at >= stop:
                return

    def _styled(self) -> list[Piece]:
        kind = self.kind
        if kind == "fence":
            return [(self.text, "markup")]
        if kind == "code":
            return self._coloured()[0]
        if kind == "heading":
            mark = _HEADING.match(self.text).end()
            return [(self.text[:mark], "markup"), (self.text[mark:], "strong")]
        mark = found.end() if (found := _ITEM.match(self.text)) is not None else 0
        return [(self.text[:mark], "markup"), *_inline(self.text[mark:])]

    def _coloured(self) -> tuple[list[Piece], str]:
        return coloured(self.text, self.language, self.opened)


def _inline(text: str) -> Iterator[Piece]:
    """Code and emphasis within a line; their marks stay, and step back."""
    at = 0
    for found in _INLINE.finditer(text):
        mark, inner, style = ((found[1], found["code"], "code") if found["code"] is not None
                              else (found[3], found["strong"], "strong"))
        yield from ((text[at : found.start()], "text"), (mark, "markup"), (inner, style), (mark, "markup"))
        at = found.end()
    yield text[at:], "text"
