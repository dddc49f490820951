"""Drafting with a smaller model: a chain, or a tree expanded as EAGLE-2 expands, or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from engines.core.tree import depths
from engines.laws import spec_of
from engines.laws.spec import point_masses
from engines.methods import counterparts as other
from engines.methods.origins import DRAFT
from engines.methods.shared.explain import Words, expanded, likeliest
from engines.methods.shared.stop_rules import STOPPED
from engines.methods.shared.tree_options import TREE_OPTIONS, DraftNote, draft_options
from engines.methods.spec import GenerateCall, MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState, best_path
from engines.report.wording import counted, ms, p3, tokens

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


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    tree, forwards = event.draft, event.draft_forwards
    path = best_path(tree)
    cost = f"{counted(forwards, 'forward pass')} of it" if forwards else "its forward passes"
    started = run.started
    noisy = spec_of(started.law, started.temperature).shares_noise
    belief = "probability of each, the noise included" if noisy else "own probability of each"
    if len(path) == len(tree.tokens):
        words = [f"The draft model, small and cheap, drafted {tokens(len(path))}, with its {belief}: "
                 f"{likeliest(tree)}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    else:
        words = [f"The draft model grew a tree of {counted(len(tree.tokens), 'node')}, "
                 f"{counted(max(depths(tree.parents)), 'level')} deep; its likeliest path: "
                 f"{likeliest(tree)}. {cost.capitalize()} took {ms(event.draft_seconds)}."]
    if not deep:
        return words
    own = prod(tree.probs[n] or 0.0 for n in path)
    return [*words, f"By its own probabilities the whole path is right with probability {p3(own)}. "
                    f"{_how_chosen(run, event)}", *expanded(run, event)]


def _how_chosen(run: RunState, event: Round) -> str:
    started = run.started
    if started.temperature == 0:
        return "At temperature 0 it writes its likeliest tokens."
    law = spec_of(started.law)
    if law.shares_noise:
        return ("It adds the same noise as the target will (coupled sampling): so where the distributions agree, "
                "the tokens agree too.")
    if law.lossless and not point_masses(event):
        return "Its tokens are drawn from q, so that the law can correct for the difference between q and p."
    return "It writes its likeliest tokens, point masses to the law."


SPEC = MethodSpec(
    id="draft",
    title="Draft model",
    summary="A smaller model drafts a chain or a tree; one with the same vocabulary is best.",
    source="Leviathan et al. 2023; Chen et al. 2023; tree expansion: Li et al. 2024 (EAGLE-2); drawn trees: Miao et "
    "al. 2024 (SpecInfer)",
    drafter="engines.methods.draft_model.drafter:DraftModel",
    order=70,
    explain=_explain,
    why_empty=lambda run, event: "the draft model has no room for this text, or cannot read it",
    note=DraftNote,
    origins=(DRAFT,),
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
