"""Screens as SVG that look the same wherever they are opened: in browsers, and in librsvg (file managers, editors)."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from rich.cells import cell_len

_FONTS = "ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace"
_CELL = 12.2  # Rich's width of a cell
_SIZE = 20.27  # of a font whose characters are 0.602 of it wide, as those of most fixed fonts are
_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" clip-path[^>]*>([^<]*)</text>')
_DECORATED = re.compile(r"\.([\w-]+) \{[^}]*text-decoration")


def portable(svg: str) -> str:
    """The picture that Rich made, without links to fonts or sites: it shows the same with no network, and tells nobody.

    Each word and each symbol stands in its own cells. Rich gives a run of text one length, which librsvg ignores, and
    in which a browser shifts everything where a symbol comes from another font; and blanks at its ends are lost.
    """
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    font = f"font-family: {_FONTS}; font-size: {_SIZE}px;"
    svg = re.sub(r"font-family: Fira Code[^;]*;\s*font-size: 20px;", font, svg)
    svg = re.sub(r"\s*font-variant-east-asian: full-width;", "", svg)
    decorated = set(_DECORATED.findall(svg))
    return _TEXT.sub(lambda run: _placed(run, run[1] in decorated), svg)


def _placed(run: re.Match[str], whole: bool) -> str:
    """A run of text as several, each at its own place; ``whole``: a line goes through its blanks, too."""
    style, x, y, text = run[1], float(run[2]), run[3], html.unescape(run[4])
    return "".join(
        f'<text class="{style}" x="{x + cell * _CELL:.5g}" y="{y}" textLength="{cell_len(part) * _CELL:.5g}" '
        f'lengthAdjust="spacingAndGlyphs">{html.escape(part)}</text>'
        for cell, part in _parts(text, whole))


def _parts(text: str, whole: bool) -> Iterator[tuple[int, str]]:
    """The cell at which each word or symbol begins, and it with the blanks after it; of decorated text all that stands
    between two symbols."""
    word = "[!-~\xa0\xb7 ]+" if whole else "[!-~]+[\xa0 ]*"
    cell = 0
    for part in re.findall(rf"[\xa0 ]+|{word}|.[\u0300-\u036f\u200d\ufe0f]*[\xa0 ]*", text):
        if part.strip("\xa0 "):
            yield cell, part
        cell += cell_len(part)
