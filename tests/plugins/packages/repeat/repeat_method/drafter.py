"""The drafter, imported when a run begins."""

from __future__ import annotations

from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources
from engines.report.events import Origin
from repeat_method import ECHO, RepeatNote


class Repeat(Drafter):
    def __init__(self, resources: Resources, *, budget: str, num_tokens: int) -> None:
        super().__init__(resources, budget)
        self.num_tokens = num_tokens

    def propose(self, context, limits) -> DraftTree:
        count = min(self.num_tokens, limits.depth, limits.nodes)
        tree = DraftTree.chain([context[-1]] * count, Origin(ECHO.name, place=len(context) - 1))
        tree.note = RepeatNote(copies=count)
        return self.worth_verifying(tree)
