"""What a conversation is made of, and what its runs are compared with."""

from __future__ import annotations

from dataclasses import dataclass

from engines.report.run_state import RunState
from engines.request import Request


@dataclass(slots=True)
class Turn:
    """A prompt, the request it was sent with, and its run; what it is for, in words, where it is not an answer."""

    prompt: str
    request: Request
    run: RunState
    purpose: str = ""

    @property
    def kept(self) -> bool:
        """Whether the next prompt builds on this turn: it ended, by itself or by esc, and said something."""
        return self.run.finished is not None and bool(self.run.text)


@dataclass(frozen=True, slots=True)
class Baseline:
    """An autoregressive rate measured in this sitting."""

    rate: float
    prompt: str
    tokens: int

    def ratio(self, run: RunState) -> float | None:
        """How many times as fast a run is; None before it has a rate."""
        rate = run.metrics.tokens_per_second
        return rate / self.rate if rate else None
