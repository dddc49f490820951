"""Names and marks as they are shown. Untrusted text is made safe by ``engines.report.plain_text``."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from functools import partial
from typing import Any

from engines.report.plain_text import LOSSY, one_line, sanitise, visible

__all__ = ["LOSSY", "as_json", "capital", "cells", "dumb", "fill", "fitted", "lossy", "one_line", "padded", "sanitise",
           "visible", "wrap"]
wrap = partial(textwrap.wrap, break_on_hyphens=False)
fill = partial(textwrap.fill, break_on_hyphens=False)
"""As of textwrap, but whole words: a command's --max-new-tokens stays one."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # of a file's name that is no UTF-8
_KEPT = re.compile(r"\S*/|[b-z]\b")  # a path, the id of a model; a symbol: p, t(n)


def as_json(data: Any, indent: int | None = None) -> str:
    """JSON for programs, in ASCII, so that nothing in it can steer a terminal; what is no text becomes a replacement
    mark, which every program can read."""
    text = json.dumps(data, ensure_ascii=False)
    return json.dumps(json.loads(_LONE_SURROGATE.sub("\ufffd", text)), indent=indent)


def dumb(environ: Mapping[str, str]) -> bool:
    """Whether the terminal knows no escape sequences, as rich decides it."""
    return environ.get("TERM", "").lower() in ("dumb", "unknown")


def cells(text: str) -> int:
    """Width in terminal columns, of which some letters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # not imported for the application's sake: its first paint waits for every import

    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """As ``one_line``, cut to so many terminal columns."""
    cuts = (one_line(text, letters) for letters in range(width, 0, -1))
    return next((cut for cut in cuts if cells(cut) <= width), "…")


def padded(text: str, width: int, right: bool = False) -> str:
    """A text with blanks after it, or before it where it stands on the ``right``, to so many terminal columns."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def in_column(text: str, width: int) -> str:
    """As ``fitted``, with a blank or more after it, in so many terminal columns."""
    return padded(fitted(text, width - 1), width)


def capital(words: str) -> str:
    """A sentence's beginning with a capital letter, unless it is no word."""
    return words if _KEPT.match(words) else words[:1].upper() + words[1:]


def lossy(bias: float | None) -> str:
    """The mark of a run that is not lossless, with the mean bias of its rounds (``Metrics.bias``) if there is one."""
    return LOSSY if bias is None else f"{LOSSY}: bias {bias:.3f} per round"
