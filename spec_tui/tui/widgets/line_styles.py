"""How a wrapped line of an answer is drawn in a view: its pieces with their styles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from engines.report.run_state import TokenState
from spec_tui.present import token_styles as marks
from spec_tui.present.blocks import Piece
from spec_tui.present.styles import style_named
from spec_tui.tui.widgets.wrap import GHOST, Line, Tok

_DRAWN_ON_BLANKS = ("underline", "strike", "reverse")
_IN_HEADINGS = {"accepted": "accepted-strong", "target": "strong"}  # of the fates those without an attribute


def pieces_of(
    line: Line, view: str, token_of: Callable[[Tok], TokenState], here: tuple[int, int] | None, here_style: str
) -> Iterator[Piece]:
    """The pieces of a line, left to right.

    Args:
        token_of: the token of a piece of text that has no style of its own.
        here: (turn, index) of the token that stands out, in ``here_style``.
    """
    before = ""
    heading = view in marks.FATES and line.block is not None and line.block.kind == "heading"
    for tok, at in line.placed():
        text = tok.text
        if tok.style is None and (tok.turn, tok.index) == here:
            before = here_style
            yield text, here_style
            continue
        if tok.style is None and view == "plain" and line.block is not None:
            before = "text"
            yield from line.block.pieces(at, at + len(text))
            continue
        style = tok.style or marks.style_of(token_of(tok), view)
        if heading:
            style = _IN_HEADINGS.get(style, style)
        drawn = style_named(style).attributes if text[0] == " " else ""
        if any(line in drawn for line in _DRAWN_ON_BLANKS):
            inked = text.lstrip(" ")
            if not inked and "reverse" in drawn:
                style = "text"
            elif inked and not style == before == GHOST:  # no line below the blank before a word; a branch is one
                yield text[: len(text) - len(inked)], "text"
                text = inked
        before = style
        yield text, style
