"""Draft & Verify: the target drafts without a fixed set of its sublayers, found by an offline search."""

from __future__ import annotations

from engines.methods.options import Option
from engines.methods.shared.self_draft import EXIT_OPTIONS, SelfDraftNote
from engines.methods.spec import MethodSpec

SEARCHED = "searched"

SPEC = MethodSpec(
    id="draft-verify",
    title="Draft & Verify",
    summary="The target drafts for itself, without the sublayers that a search (spec-tui search-layers) found best to "
    "leave out.",
    source="Zhang et al. 2024 (Draft & Verify)",
    drafter="engines.methods.draft_verify.drafter:DraftVerify",
    explanation="engines.methods.shared.explain_self_draft",
    note=SelfDraftNote,
    self_speculative=True,
    prepared=("layers", SEARCHED, "a layer search (spec-tui search-layers)"),
    layers_unknown="the next answer leaves out what spec-tui search-layers found, or what layers= says",
    layers_hint="spec-tui search-layers finds such a set",
    options=(
        Option("layers", SEARCHED, "The sublayers left out. searched: what spec-tui search-layers found for this "
               "model here; a3,a5-7,m4 the attention of layers 3, 5, 6, 7 and the MLP of 4."),
        *EXIT_OPTIONS,
    ),
)
