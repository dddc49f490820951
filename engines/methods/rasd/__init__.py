"""RASD: the tree of a draft model or an EAGLE head, fused with a tree of what was retrieved."""

from __future__ import annotations

from dataclasses import dataclass

from engines.methods import what_drafts
from engines.methods.draft_model import SPEC as DRAFT_SPEC
from engines.methods.draft_model import TREE_OPTIONS
from engines.methods.eagle import SPEC as EAGLE_SPEC
from engines.methods.notes import labelled
from engines.methods.options import BUDGET, FRACTION, Option
from engines.methods.origins import DRAFT, OUTPUT, PROMPT, RETRIEVAL
from engines.methods.pld import SPEC as PLD_SPEC
from engines.methods.rest import SPEC as REST_SPEC
from engines.methods.shared import explain
from engines.methods.shared.explain import Words, passage
from engines.methods.shared.tree_options import DraftNote
from engines.methods.spec import MethodSpec
from engines.report.events import Round
from engines.report.run_state import RunState, origin_of
from engines.report.wording import counted, ms, quoted, tokens

REST, PLD = REST_SPEC.id, PLD_SPEC.id
"""Retrieve as one of these methods does."""

AUTO = "auto"
_TOLD = 5  # branches that were cut off and are named
DRAFTERS = {spec.id: spec.needs[0] for spec in (EAGLE_SPEC, DRAFT_SPEC)}
"""Methods whose tree it takes, with what they need. A head was trained for its target, as the paper's was: it is taken
first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasdNote(DraftNote):
    """Attributes:
    match: tokens of the suffix that was found, 0 for none.
    fused, pruned: nodes of the draft that both trees have; retrieved nodes that were cut off before they were joined.
    shared: drafted tokens after which something was found.
    drafter: the method whose tree it took."""

    match: int | None = labelled("match")
    fused: int | None = labelled("fused")
    pruned: int | None = labelled("pruned")
    shared: int | None = labelled("found after drafted tokens")
    drafter: str | None = labelled("drafter")


def _explain(run: RunState, event: Round, deep: bool) -> Words:
    found, tree = event.retrieval, event.draft
    if found is None:
        return explain.draft(run, event, deep)
    mine = sum(origin_of(tree, n).source == DRAFT.name for n in range(len(tree.tokens)))
    cut, both = sum(count for _, count in found.pruned), tree.fused
    who = what_drafts(run)
    if not found.hits:
        return [f"RASD joins two trees. The lookup found nothing here, so this is the tree of the {who}: "
                f"{counted(mine, 'node')}.", *([f"Drafting took {ms(event.draft_seconds)} in all."] if deep else [])]
    looked = f"matched the last {tokens(found.match)}"
    words = [f"RASD joins two trees: {counted(mine, 'node')} of the {who} and {len(tree.tokens) - mine} that "
             f"only the lookup proposed; it {looked}. Both proposed {both}. Pruned: {counted(cut, 'node')} below first "
             f"tokens that are not among the {who}'s likeliest."]
    if not deep:
        return words
    gone = ", ".join(f"{quoted(piece)} ×{count}" for piece, count in found.pruned[:_TOLD])
    gone += f" and {len(found.pruned) - _TOLD} more" if len(found.pruned) > _TOLD else ""
    return [*words, f"{counted(found.hits, 'hit')}, {counted(found.used, 'different continuation')}, whose heaviest "
            f"prefixes are the retrieved tree, in {ms(found.seconds)}; drafting took {ms(event.draft_seconds)} in all."
            + (f" Cut off: {gone}." if gone else ""), *passage(event)]


SPEC = MethodSpec(
    id="rasd",
    title="RASD",
    summary="Fuses the tree of a draft model or an EAGLE head with a tree of what was retrieved, pruned by the "
            "drafter's probabilities.",
    source="RASD: Retrieval-Augmented Speculative Decoding (ACL submission), algorithm 1",
    drafter="engines.methods.rasd.drafter:Rasd",
    order=100,
    explain=_explain,
    why_empty=lambda run, event: f"neither the {what_drafts(run)} nor the lookup drafted anything",
    reference="RASD, algorithm 1, sections 3.2.2 (pruning) and 3.2.3 (fusion)",
    note=RasdNote,
    origins=(DRAFT, RETRIEVAL, PROMPT, OUTPUT),
    options=(
        BUDGET,
        Option("drafter", AUTO, "The engine whose tree it takes: a draft model's or an EAGLE head's. auto: the "
               "head if one is loaded, else the draft model.", choices=(AUTO, *DRAFTERS)),
        Option("retrieval", REST, "Where it searches: in the datastores, as REST does, or in prompt and answer, as "
               "prompt lookup does, without a datastore.", choices=(REST, PLD)),
        Option("prune", True, "Prune branches that do not begin with a likely token of the drafter (Table 3). What "
               "the drafter cannot rank, since its vocabulary is smaller, stays."),
        Option("prune_top", 10, "How many of the drafter's likeliest tokens pruning keeps.", 1, 64),
        Option("fuse", True, "Merge common prefixes of the two trees; false puts both under one root (Table 3)."),
        Option("candidates", 16, "Shorter suffixes are searched until so many continuations are found (the paper's "
               "n).", 1, 256),
        Option("length", 8, "Tokens of each continuation (the paper's l).", 1, 64),
        Option("n_max", 16, "Longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Shortest suffix that counts as a match.", 1, 64),
        Option("nodes", 64, "Maximum number of nodes of the retrieval tree, the heaviest.", 1, 256),
        *TREE_OPTIONS,
        FRACTION,
    ),
    needs=(*DRAFTERS.values(), "datastore"),
    drafts_with=("drafter", DRAFTERS),
    storeless=("retrieval", PLD),
    trials=({"retrieval": PLD},),
)
