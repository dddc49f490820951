"""Drafting with a smaller model: a chain, or a tree expanded as EAGLE-2 expands, or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engines.methods import counterparts as other
from engines.methods.shared.stop_rules import STOPPED
from engines.methods.shared.tree_options import TREE_OPTIONS, DraftNote, draft_options
from engines.methods.spec import GenerateCall, MethodSpec

__all__ = ["SPEC", "TREE_OPTIONS", "DraftNote"]


def _counterparts(options: Mapping[str, Any], setup: other.DraftSetup) -> tuple[other.Counterpart, ...]:
    if setup.draft_model is None:
        return ()
    tokens, (written, model) = other.size(options, setup), setup.draft_model.as_folder()
    stop, unstopped = other.least_probability(options)
    in_vllm = other.vllm(
        setup, other.losses(options, *[other.STOP] * bool(stop or unstopped)), written, method="draft_model",
        model=model, num_speculative_tokens=tokens)
    in_sglang = other.sglang(
        setup, "STANDALONE", other.losses(options, *[other.STOP] * bool(stop or unstopped), trees=True), written,
        draft_model_path=model, **other.sglang_tree(options, setup))
    return (
        *[in_vllm, in_sglang] * setup.same_tokens,  # they take no other
        other.llama_cpp(setup, "draft-simple", other.losses(options, *unstopped), setup.draft_model,
                        spec_draft_n_max=tokens, **({"spec_draft_p_min": stop} if stop else {})),
        other.assisted(setup, other.losses(options, *unstopped), num_assistant_tokens=tokens,
                       num_assistant_tokens_schedule="constant",
                       **({"assistant_confidence_threshold": stop} if stop is not None else {})),
    )


SPEC = MethodSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model drafts a chain or a tree; one with the same vocabulary is best.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2); drawn trees: Miao et "
    "al. 2024 (SpecInfer)",
    drafter="engines.methods.draft_model.drafter:DraftModel",
    explanation="engines.methods.draft_model.explain",
    note=DraftNote,
    drafts_from="the draft model",
    options=draft_options(num_tokens=12, confidence=0.4, tree=TREE_OPTIONS),
    needs=("draft model",),
    default_priority=2,
    race_place=3,
    variants=({"shape": "tree"},),
    trials=({"budget": "paper", "num_tokens": 3}, {"budget": "paper"}, *STOPPED),
    counterparts=_counterparts,
    generate=GenerateCall("generate+assistant", "generate(assistant_model=the draft model)", assisted=True),
)
