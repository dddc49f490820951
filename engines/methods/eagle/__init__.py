"""EAGLE: a learned head drafts from the target's own hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engines.core.tree import depths
from engines.heads.head_config import EAGLE_HEAD
from engines.methods import counterparts as other
from engines.methods.origins import DRAFT
from engines.methods.shared.explain import Words, expanded, likeliest
from engines.methods.shared.stop_rules import STOPPED
from engines.methods.shared.tree_options import TREE_OPTIONS, DraftNote, draft_options
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState, best_path
from engines.report.wording import counted, ms, tokens

_DEPTH, _TOP_K, _TOTAL_NODES = TREE_OPTIONS


def _counterparts(options: Mapping[str, Any], setup: other.DraftSetup) -> tuple[other.Counterpart, ...]:
    if setup.head is None:
        return ()
    stop, unstopped = other.least_probability(options)
    written, head = setup.as_head()
    lost = other.losses(options, *[other.STOP] * bool(stop or unstopped),
                        "SGLang and llama.cpp at all, which read EAGLE-3 heads in SpecForge's layout and in GGUF "
                        "files; neither is written here")
    return (other.vllm(setup, lost, written, method=other.vllm_method(setup.family), model=head,
                       num_speculative_tokens=other.size(options, setup)),)


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    tree, forwards = event.draft, event.draft_forwards
    path = best_path(tree)
    known = run.prefilled.reads if run.prefilled is not None else None
    reads = known.words if known is not None else "the target's hidden states"
    cost = f"{counted(forwards, 'pass')} of the head" if forwards else "The head"
    shape = tokens(len(path))
    if len(path) < len(tree.tokens):
        levels = counted(max(depths(tree.parents)), "level")
        shape = f"a tree of {counted(len(tree.tokens), 'node')}, {levels} deep, whose likeliest path is"
    words = [f"The head, one layer trained for this target, drafted {shape}: {likeliest(tree)}. {cost} took "
             f"{ms(event.draft_seconds)}."]
    if not deep:
        return words
    return [*words, f"For the first token it reads {reads} of the last row that the target computed, and the root's "
            "embedding. For each token after that it reads its own output instead, so it grows less sure with depth.",
            *expanded(run, event)]


SPEC = MethodSpec(
    id="eagle",
    title="EAGLE",
    summary="A small head trained for the target reads the target's hidden states and drafts a chain or a tree.",
    source="Li et al. 2024 (EAGLE), 2024 (EAGLE-2: the tree), 2025 (EAGLE-3: features of several layers)",
    drafter="engines.methods.eagle.drafter:Eagle",
    order=80,
    explain=_explain,
    why_empty=lambda run, event: "the head has no room for this text",
    note=DraftNote,
    origins=(DRAFT,),
    drafts_from="the draft head",
    options=draft_options(num_tokens=8, confidence=0.0, tree=(
        replace(_DEPTH, default=6, paper=None), _TOP_K, replace(_TOTAL_NODES, default=24))),
    needs=(EAGLE_HEAD,),
    variants=({"shape": "tree"},),
    trials=({"budget": "paper", "num_tokens": 3}, *STOPPED),
    counterparts=_counterparts,
)
