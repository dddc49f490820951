"""Medusa: heads that each draft for one of the next places, from one hidden state of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.core.tree import depths
from engines.heads.head_config import MEDUSA_HEADS
from engines.methods import counterparts as other
from engines.methods import note_of
from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.origins import DRAFT
from engines.methods.shared.explain import Words, top
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState
from engines.report.wording import counted, ms, tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaNote(Note):
    """Attributes:
    heads: how many drafted."""

    heads: int | None = labelled("heads")


def _counterparts(options: Mapping[str, Any], setup: other.DraftSetup) -> tuple[other.Counterpart, ...]:
    if setup.head is None:
        return ()
    written, head = setup.as_head()
    return (other.vllm(setup, other.losses(options, other.CHAIN), written, method=SPEC.id, model=head,
                       num_speculative_tokens=min(options["heads"], setup.depth)),)


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    note: MedusaNote = note_of(run.started, event)
    levels = max(depths(event.draft.parents))
    asked = counted(note.heads or levels, "head")
    words = [f"{asked}, trained for this target, guessed side by side, each for one of the next places. Their "
             f"candidates make a tree of {tokens(len(event.draft.tokens))}, {counted(levels, 'level')} deep, the "
             f"likeliest first {top(event)}. One pass of the heads took {ms(event.draft_seconds)}."]
    if not deep:
        return words
    return [*words, "Every head reads the last hidden state of the row from which the root was "
                    "chosen, and none knows what the others guess: a path's probability is the product of theirs, and "
                    "deep paths are less sure than they say."]


SPEC = MethodSpec(
    id="medusa",
    title="Medusa",
    summary="Small heads trained for the target read its last hidden state; each drafts for one of the next places, "
            "and their candidates make a tree.",
    source="Cai et al. 2024 (Medusa)",
    drafter="engines.methods.medusa.drafter:Medusa",
    order=90,
    explain=_explain,
    why_empty=lambda run, event: "drafting does not pay now, or the answer has no room for a guess",
    reference="Medusa (Cai et al. 2024), sections 2.1 and 2.3.3",
    note=MedusaNote,
    origins=(DRAFT,),
    options=(
        BUDGET,
        Option("heads", 8, "Maximum number of heads used, of those in the file.", 1, 16),
        Option("top_k", 10, "Candidates of each head.", 1, 32),
        Option("nodes", 32, "Maximum number of nodes drafted, the likeliest paths; with budget=paper the published "
               "tree, cut to these.", 1, 256, paper=63),
    ),
    needs=(MEDUSA_HEADS,),
    one_pass=True,
    trials=({"budget": "paper", "nodes": 8},),
    counterparts=_counterparts,
)
