"""Word wrap for a text that only grows at its end: tokens in, lines out, no line touched twice.

Only the open line changes while text streams. What comes after the committed text (rejected drafts) is a tail that is
taken off again before the next token is placed. What a row below the first of a line begins with (``HANG``) is no part
of the text either: it keeps code and the items of a list recognisable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len

from spec_tui.present.blocks import TextLine
from spec_tui.present.text import cells

GUTTER = 2  # columns at the left of every line, for bars
GHOST = "ghost"  # style of what is no part of the text: rejected draft tokens
HANG = "markup"  # style of what a wrapped row begins with


class Tok(NamedTuple):
    """A piece of text on a line. ``style`` None means: by the token ``index`` of ``turn`` and the current view."""

    text: str
    style: str | None
    turn: int = -1
    index: int = -1

    @property
    def is_text(self) -> bool:
        """Whether it is a part of the text."""
        return self.style not in (GHOST, HANG)


@dataclass(slots=True)
class Line:
    """A wrapped line.

    Attributes:
        toks: what stands on it, left to right.
        cells: its width.
        soft: None where a paragraph starts; else the blanks of the text that a soft wrap swallowed.
        gutter: style name of the bar at its left, "" for none.
        at: (turn, index of the first token that may stand on it), for searching.
        copied: whether its text belongs to a selection.
        block: the line of the answer that it is a row of; None outside of answers.
        start: where in the text of that line it begins.
    """

    toks: list[Tok] = field(default_factory=list)
    cells: int = 0
    soft: str | None = None
    gutter: str = ""
    at: tuple[int, int] = (-1, -1)
    copied: bool = True
    block: TextLine | None = None
    start: int = 0

    def placed(self) -> Iterator[tuple[Tok, int]]:
        """What stands on it, each with its place in the text of the answer's line."""
        at = self.start
        for tok in self.toks:
            yield tok, at
            at += len(tok.text) * tok.is_text

    @property
    def code(self) -> bool:
        """Whether code stands on it, or a fence."""
        return self.block is not None and self.block.kind in ("code", "fence")


class Wrapper:
    """Lines of a growing text of a fixed width."""

    def __init__(self, width: int) -> None:
        self.width = max(4, width)
        self.lines: list[Line] = []
        self._mark: tuple[int, list[Tok], int] | None = None

    def start_line(self, gutter: str = "", at: tuple[int, int] = (-1, -1), copied: bool = True,
                   answer: bool = False) -> Line:
        """Open a new paragraph; with ``answer`` its lines are read as Markdown."""
        self.lines.append(Line(gutter=gutter, at=at, copied=copied, block=TextLine() if answer else None))
        return self.lines[-1]

    def push(self, toks: Iterable[Tok]) -> None:
        """Place these at the end."""
        for tok in toks:
            text = tok.text
            if text.isalnum():
                self._read(tok)
                continue
            for n, part in enumerate(text.split("\n")):
                if n:
                    self._next_line(tok)
                if part:
                    self._read(tok._replace(text=part.replace("\t", "    ")))

    def _read(self, tok: Tok) -> None:
        block = self.lines[-1].block
        if block is not None and tok.is_text:
            block.text += tok.text
        self._place(tok)

    def drop_tail(self) -> int | None:
        """Take the tail off; the first line that changes, None if there was no tail."""
        if self._mark is None:
            return None
        first, toks, width = self._mark
        self._mark = None
        del self.lines[first + 1 :]
        self.lines[first].toks, self.lines[first].cells = toks, width
        return first

    def put_tail(self, toks: Iterable[Tok]) -> None:
        """Show these behind the text, as many as fit on the open line: a tail never makes the text jump."""
        line = self.lines[-1]
        self._mark = (len(self.lines) - 1, list(line.toks), line.cells)
        for tok in toks:
            width = cells(tok.text)
            if line.cells + width > self.width:
                break
            line.toks.append(tok)
            line.cells += width

    def _next_line(self, tok: Tok, soft: str | None = None) -> Line:
        """Open a line like the last one; ``tok`` is the first that may stand on it."""
        last = self.lines[-1]
        block = last.block if last.block is None or soft is not None else last.block.next()
        line = Line(soft=soft, gutter=last.gutter, at=(tok.turn, tok.index), copied=last.copied, block=block)
        if soft is not None and block is not None:
            line.start = last.start + sum(len(tok.text) for tok in last.toks if tok.is_text) + len(soft)
            if hang := block.hang[-(self.width // 2) :]:
                line.toks.append(Tok(hang, HANG))
                line.cells = cells(hang)
        self.lines.append(line)
        return line

    def _place(self, tok: Tok) -> None:
        line, width = self.lines[-1], cells(tok.text)
        if line.cells + width <= self.width:
            line.toks.append(tok)
            line.cells += width
            return
        carry = self._carried(line, tok)
        line.cells = sum(cells(t.text) for t in line.toks)
        head = carry[0].text
        blanks = len(head) - len(head.lstrip(" "))
        carry[0] = carry[0]._replace(text=head[blanks:])
        self._fill(carry, self._next_line(carry[0], "" if carry[0].style == GHOST else head[:blanks]))

    def _carried(self, line: Line, tok: Tok) -> list[Tok]:
        """The unfinished word at the end of the line, taken off it, with the token that didn't fit."""
        cut = len(line.toks)
        if not tok.text[0].isspace():
            while cut and not line.toks[cut - 1].text[0].isspace():
                cut -= 1
            cut = max(0, cut - 1)
        if cut == 0 or not any(t.text.strip() for t in line.toks[:cut] if t.style != HANG):
            cut = len(line.toks)  # one word fills the line, or only its indent stands before it: cut the word instead
        carry = line.toks[cut:]
        del line.toks[cut:]
        return [*carry, tok]

    def _fill(self, toks: list[Tok], line: Line) -> None:
        for tok in toks:
            text = tok.text
            while text:
                piece = _take(text, self.width - line.cells)
                if not piece:
                    line = self._next_line(tok, "")
                    piece = _take(text, self.width - line.cells) or text[0]
                line.toks.append(tok._replace(text=piece))
                line.cells += cells(piece)
                text = text[len(piece) :]


def _take(text: str, room: int) -> str:
    """As much of the text as fits into ``room`` columns."""
    if text.isascii():
        return text[: max(0, room)]
    used = 0
    for n, char in enumerate(text):
        used += cell_len(char)
        if used > room:
            return text[:n]
    return text


def wrapped(toks: Iterable[Tok], width: int, answer: bool = False) -> list[list[tuple[str, str]]]:
    """A text that no longer grows, as rows of (text, style name); of a whole ``answer``, as Markdown."""
    wrapper = Wrapper(width - GUTTER)
    wrapper.start_line(answer=answer)
    wrapper.push(toks)
    return [[(tok.text, tok.style or "text") for tok in line.toks] for line in wrapper.lines]
