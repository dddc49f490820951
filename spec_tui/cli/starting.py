"""A word on the terminal at once, while libraries are imported: on a busy machine that takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from engines.libraries.uncollected import uncollected
from spec_tui.present.text import dumb


@contextmanager
def starting() -> Iterator[None]:
    """Say that the program starts, where a person is at the terminal, and take it back at the end."""
    shown = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and not dumb(os.environ)
    _write("spec-tui is starting ...\r" * shown)
    try:
        with uncollected():
            yield
    finally:
        _write("\r\x1b[K" * shown)


def _write(text: str) -> None:
    if text:
        sys.stderr.write(text)
        sys.stderr.flush()
