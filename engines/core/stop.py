"""When an answer ends: decided once, in the loop, before anything is committed."""

from __future__ import annotations

from dataclasses import dataclass

from engines.report.events import Reason


@dataclass(frozen=True, slots=True)
class Stop:
    """End tokens and the length limit of a run."""

    end_tokens: frozenset[int]
    max_new_tokens: int

    def cut(self, new: list[int], before: int) -> tuple[list[int], Reason | None]:
        """The tokens that count and why the answer ends with them (None: it goes on).

        Args:
            new: tokens of this round.
            before: tokens of the answer so far.
        """
        new = new[: self.max_new_tokens - before]
        for i, token in enumerate(new):
            if token in self.end_tokens:
                return new[: i + 1], "stop"
        return new, "length" if before + len(new) >= self.max_new_tokens else None
