"""Medusa: heads that each draft for one of the next places, from one hidden state of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engines.heads.shape import MEDUSA_HEADS
from engines.methods import counterparts as other
from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, Option
from engines.methods.spec import MethodSpec


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


SPEC = MethodSpec(
    id="medusa",
    title="Medusa",
    summary="Small heads trained for the target read its last hidden state; each drafts for one of the next places, "
            "and their candidates make a tree.",
    source="Cai et al. 2024 (Medusa)",
    drafter="engines.methods.medusa.drafter:Medusa",
    explanation="engines.methods.medusa.explain",
    reference="Medusa (Cai et al. 2024), sections 2.1 and 2.3.3",
    note=MedusaNote,
    options=(
        BUDGET,
        Option("heads", 8, "Most heads asked, as far as the file has them.", 1, 16),
        Option("top_k", 10, "Candidates of each head.", 1, 32),
        Option("nodes", 32, "Most nodes drafted, those of the likeliest paths; with budget=paper the published tree, "
               "cut to these.", 1, 256, paper=63),
    ),
    needs=(MEDUSA_HEADS,),
    one_pass=True,
    trials=({"budget": "paper", "nodes": 8},),
    counterparts=_counterparts,
)
