"""What the loop tells a drafter and everybody else who follows a run, and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from engines.core.tree import DraftTree

if TYPE_CHECKING:
    import torch

    from engines.core.lossless_laws import Verdict

Reason = Literal["stop", "length", "cancelled"]


class DraftLimits(NamedTuple):
    """What a draft may use: ``depth`` tokens on a path, ``nodes`` in all."""

    depth: int
    nodes: int


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a forward of the target brought: the prefill's, then one a round.

    Attributes:
        context: all token ids so far, prompt and answer; the loop appends to this list.
        prompt_length: how many of them are the prompt.
        position: index in the context of the first token emitted here.
        tree, verdict: what was verified (nothing in the prefill), and the law's decision, cut where the answer ends.
        logits: float [rows, vocabulary]: row 0 is the root, row i + 1 is node i; one row after the prefill.
        draft_seconds, verify_seconds, other_seconds: drafting, the forward, the rest; a prefill has only the last.
        reused: tokens of the prompt whose KV rows were already cached.
        reason: why the answer ends here; None where it goes on.
    """

    context: Sequence[int]
    prompt_length: int
    position: int
    tree: DraftTree
    verdict: Verdict
    logits: torch.Tensor
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    other_seconds: float = 0.0
    reused: int = 0
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """End tokens and the length limit of a run."""

    end_tokens: frozenset[int]
    max_new_tokens: int

    def cut(self, new: list[int], before: int) -> tuple[list[int], Reason | None]:
        """Of the ``new`` tokens, after ``before`` earlier ones, those that count, and why the answer ends with them
        (None: it goes on)."""
        new = new[: self.max_new_tokens - before]
        for i, token in enumerate(new):
            if token in self.end_tokens:
                return new[: i + 1], "stop"
        return new, "length" if before + len(new) >= self.max_new_tokens else None
