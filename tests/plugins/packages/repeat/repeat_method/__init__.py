"""A drafting method of somebody else: the last token again and again."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import OriginKind
from engines.methods.spec import MethodSpec

ECHO = OriginKind("echo", "E", "echo", "output", "italic", "said again")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatNote(Note):
    """Attributes:
    copies: how often the last token stands in the draft."""

    copies: int | None = labelled("copies drafted")


def explain(run, event, deep):
    return [f"The last token is simply said again, {len(event.draft.tokens)} times over."]


SPEC = MethodSpec(
    id="repeat",
    title="Repeat",
    summary="Drafts the last token again and again.",
    source="tests of spec-tui",
    drafter="repeat_method.drafter:Repeat",
    explain=explain,
    why_empty=lambda run, event: "there is nothing to say again",
    note=RepeatNote,
    origins=(ECHO,),
    options=(BUDGET, Option("num_tokens", 4, "Most copies drafted.", 1, 8)),
)
