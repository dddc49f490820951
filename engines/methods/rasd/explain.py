"""RASD in words."""

from __future__ import annotations

from engines.methods import what_drafts
from engines.methods.shared import explain
from engines.methods.shared.explain import Words, passage
from engines.report.events import Round
from engines.report.run_state import RunState, origin_of
from engines.report.wording import counted, ms, quoted, tokens


def draft(run: RunState, event: Round, deep: bool) -> Words:
    found, tree = event.retrieval, event.draft
    if found is None:
        return explain.draft(run, event, deep)
    mine = sum(origin_of(tree, n).source == "draft" for n in range(len(tree.tokens)))
    cut, both = sum(count for _, count in found.pruned), sum(origin >= 0 for origin in tree.also)
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
    gone = ", ".join(f"{quoted(piece)} ×{count}" for piece, count in found.pruned[:5])
    return [*words, f"{counted(found.hits, 'hit')}, {counted(found.used, 'different continuation')}, whose heaviest "
            f"prefixes are the retrieved tree, in {ms(found.seconds)}; drafting took {ms(event.draft_seconds)} in all."
            + (f" Cut off: {gone}." if gone else ""), *passage(event)]


def nothing(run: RunState, event: Round) -> str:
    return f"neither the {what_drafts(run)} nor the lookup drafted anything"
