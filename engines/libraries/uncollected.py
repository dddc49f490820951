"""Importing without the garbage collector: there are thousands of new objects, of which none is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect nothing meanwhile, and nothing afterwards of what is there at the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
