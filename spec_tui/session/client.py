"""Three ways to an engine behind one face: its own process, this process, a recorded trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engines.events import Event
from engines.request import Request


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Models to load: folders or hub ids; None takes the shipped ones. dtype and device "auto" or a name."""

    model: str | None = None
    draft_model: str | None = None
    dtype: str = "auto"
    device: str = "auto"


class EngineClient(Protocol):
    """What a screen needs of an engine. No call blocks; everything that happens comes back as events."""

    def load(self, request: LoadRequest) -> None:
        """Load models: ``Loading``..., then ``Ready`` or ``Failed``."""

    def run(self, request: Request) -> None:
        """Start a run: ``Started``, ``Prefilled``, ``Round``..., then ``Finished`` or ``Failed``. One at a time."""

    def cancel(self) -> None:
        """Stop the run in progress after the round under way (``Finished`` with reason "cancelled")."""

    def events(self) -> list[Event]:
        """What has arrived since the last call, in order; empty if nothing."""

    @property
    def alive(self) -> bool:
        """Whether the engine can take requests; after a crash False, and one ``Failed`` has been delivered."""

    def restart(self) -> None:
        """A fresh engine after a crash; the last load is repeated."""

    def close(self) -> None:
        """Stop the engine and wait for it."""
