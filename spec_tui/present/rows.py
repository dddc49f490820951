"""Rows of text and style names, as screens, pages and lessons draw them."""

from __future__ import annotations

from collections.abc import Sequence

from engines.report.events import HeadReads
from spec_tui.present.text import wrap
from spec_tui.present.token_styles import ABSENT, PRESENT, spans

Span = tuple[str, str]
"""Text and style name."""
Row = Sequence[Span]


def bar(share: float, width: int) -> str:
    """A horizontal bar of eighths."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def struck(mark: str, word: str) -> list[Span]:
    """A word with a line through it, and a mark and blanks without: the line would hide them."""
    own = word.rstrip()
    return [(mark, "bad"), (own, "ghost"), (word[len(own) :], "text")]


def taps(reads: HeadReads, width: int) -> Row:
    """What a head reads of the target: a mark for each layer, and for the final norm where that is read; in words
    where the layers are too many for the width."""
    told = " last hidden state" if reads.final else f" {' '.join(map(str, reads.layers))} of {reads.of}"
    if len("reads ") + reads.of + reads.final + len(told) > width:
        return [("reads ", "muted"), (reads.words, "text")]
    marks = "".join(PRESENT if layer in reads.layers else ABSENT for layer in range(1, reads.of + 1))
    return [("reads ", "muted"), (marks + PRESENT * reads.final, "accent"), (told, "muted")]


def rows_of(words: str, width: int, style: str = "text") -> list[Row]:
    """A text, wrapped to a width."""
    return [[(line, style)] for line in wrap(words, width)]


def rows_beside(mark: str, style: str, words: str, width: int) -> list[Row]:
    """A text, wrapped beside a mark; LOSSY stands out in it."""
    lines = wrap(words, max(20, width - len(mark) - 1)) or [""]
    return [[(" " * len(mark) if n else mark, style), *spans(line, "text")] for n, line in enumerate(lines)]


def words_of(row: Row) -> str:
    """A row without its styles."""
    return "".join(text for text, _ in row).rstrip()
