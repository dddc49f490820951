"""DReSD: what followed the hidden states most like the present one in a datastore."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods.notes import Note, labelled
from engines.methods.options import BUDGET, FRACTION, Option
from engines.methods.spec import MethodSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DresdNote(Note):
    """Attributes:
    neighbours: hidden states that were near; ``similarity`` of the nearest."""

    neighbours: int | None = labelled("neighbours")
    similarity: float | None = labelled("similarity")


SPEC = MethodSpec(
    id="dresd",
    title="DReSD",
    summary="Looks up the target's last hidden state among those of a datastore and drafts what followed there.",
    source="Gritta et al. 2025 (DReSD), algorithm 1",
    drafter="engines.methods.dresd.drafter:DReSD",
    explanation="engines.methods.dresd.explain",
    reference="DReSD (Gritta et al. 2025), sections 3.1 to 3.5, algorithm 1",
    note=DresdNote,
    options=(
        BUDGET,
        Option("drafts", 10, "Nearest neighbours that are drafted.", 1, 64),
        Option("length", 10, "Tokens of each.", 1, 64),
        Option("distinct", True, "Neighbours that go on alike count as one, and others take their places. The paper's "
               "drafts repeat each other.", paper=False),
        Option("neighbours", 0, "Nearest keys that are looked at, of which those are left out whose text went on with "
               "another token. 0: as many as the index scores, 100 to 150, and four times as many where few are left.",
               0, 4096, paper=50),
        FRACTION,
    ),
    needs=("dense datastore",),
    drafts_from="similar hidden states",
    trials=({"drafts": 4},),
)
