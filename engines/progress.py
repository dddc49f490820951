"""Progress of work that takes a while, for whoever waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading: a stage in words, and how much of it is done (0..1, None where unknown). ``bytes`` is the
    size of the download under way, None while nothing is downloaded; an event that announces one has no ``done``."""

    stage: str
    done: float | None = None
    bytes: int | None = None
