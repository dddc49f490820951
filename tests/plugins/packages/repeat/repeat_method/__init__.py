"""A drafting method of somebody else: the last token again and again."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.spec import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatNote(Note):
    """Attributes:
    copies: how often the last token stands in the draft."""

    copies: int | None = labelled("copies drafted")


SPEC = MethodSpec(
    id="repeat",
    title="Repeat",
    summary="Drafts the last token again and again.",
    source="tests of spec-tui",
    drafter="repeat_method.drafter:Repeat",
    explanation="repeat_method.explain",
    note=RepeatNote,
    options=(BUDGET, Option("num_tokens", 4, "Most copies drafted.", 1, 8)),
)
