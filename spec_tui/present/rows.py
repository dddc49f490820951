"""Rows of text and style names, as screens, pages and lessons draw them."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[str, str]
"""Text and style name."""
Row = Sequence[Span]


def bar(share: float, width: int) -> str:
    """A horizontal bar of eighths."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def words_of(row: Row) -> str:
    """A row without its styles."""
    return "".join(text for text, _ in row).rstrip()
