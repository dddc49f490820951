"""Draft & Verify: the target drafts without a fixed set of its sublayers."""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.origins import DRAFT
from engines.methods.shared.self_draft import EXIT_OPTIONS, SelfDraftNote, explain_self_draft
from engines.methods.spec import MethodSpec

MIDDLE = "middle"

SPEC = MethodSpec(
    id="draft-verify",
    title="Draft & Verify",
    summary="The target drafts for itself, without a fixed set of its sublayers, and verifies with all of them.",
    source="Zhang et al. 2024 (Draft & Verify)",
    drafter="engines.methods.draft_verify.drafter:DraftVerify",
    order=130,
    explain=explain_self_draft,
    note=SelfDraftNote,
    origins=(DRAFT,),
    self_speculative=True,
    layers_unknown="the next answer leaves out what layers= says",
    layers_hint="/set layers=a3,a5-7,m4 chooses the set",
    options=(
        Option("layers", MIDDLE, "The sublayers left out. middle: the attention of every second layer of the middle "
               "half; a3,a5-7,m4: the attention of layers 3, 5, 6, 7 and the MLP of 4."),
        *EXIT_OPTIONS,
    ),
)
