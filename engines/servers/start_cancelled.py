"""A program that is being started, and is no longer wanted."""

from __future__ import annotations

from collections.abc import Callable

from engines.errors import RunFailed
from engines.progress import Loading


class StartCancelled(RunFailed):
    """A start of llama.cpp that was cancelled; nothing of it is left."""

    kind = "cancelled"

    def __init__(self) -> None:
        super().__init__("the start of llama.cpp was stopped", "ask again to start it")


def unless(cancelled: Callable[[], bool], progress: Callable[[Loading], None]) -> Callable[[Loading], None]:
    """Progress of a start that leaves it, with StartCancelled, once it is cancelled."""
    def told(step: Loading) -> None:
        if cancelled():
            raise StartCancelled
        progress(step)

    return told
