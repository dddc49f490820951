"""Prompt lookup decoding: copy what followed the last n tokens where they occurred before.

Source: Saxena, "Prompt Lookup Decoding" (2023), and the n-gram approach of the guide. Differences, each an option: the
longest whole match and then the latest is preferred (upstream takes the oldest that has all of the tokens to copy), and
several distinct matches can be merged into one tree. How much of the copy is verified is the budget's choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources, in_order
from engines.methods.pld import LookupNote
from engines.methods.shared.conversation import Conversation

_LONGEST = 32  # tokens of a match that are counted
_LOOKED_AT = 64  # occurrences of an n-gram, the latest or the oldest
_FULL = 10  # tokens to copy that are as good as more


class PromptLookup(Drafter):
    """n-gram lookup in prompt and output, over an index that grows with the text."""

    def __init__(
        self, resources: Resources, *, budget: str, max_ngram: int, min_ngram: int, num_tokens: int,
        match: str, num_candidates: int,
    ) -> None:
        super().__init__(resources, budget)
        in_order(min_ngram=min_ngram, max_ngram=max_ngram)
        self.sizes = range(max_ngram, min_ngram - 1, -1)
        self.num_tokens, self.num_candidates, self.oldest = num_tokens, num_candidates, match == "oldest"
        self.conversation = Conversation()

    def start(self, outcome: Outcome) -> None:
        self.conversation = Conversation(outcome.context, outcome.prompt_length)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        self.conversation.grow(context)
        length = min(self.num_tokens, limits.depth)
        tree = DraftTree()
        if length < 1:
            return tree
        for matched, end in self._oldest(context) if self.oldest else self._latest(context, length):
            self._merge(tree, context, matched, end, length)
            if tree.note is None:
                tree.note = LookupNote(match=tree.origins[0].match, position=end)
            if len(tree.origins) >= self.num_candidates or len(tree) >= limits.nodes:
                break
        return self.worth_verifying(tree)

    def _oldest(self, context: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(matched length, end) of earlier occurrences of the context's suffix that have ``num_tokens`` tokens after
        them: found by the longest n, and of these the oldest first."""
        seen: set[int] = set()
        for match in self.conversation.falling(context, self.sizes.start, self.sizes.stop + 1):
            for end in match.where[:_LOOKED_AT].tolist():
                if end + self.num_tokens <= len(context) and end not in seen:
                    seen.add(end)
                    yield _matched(context, match.length, end), end

    def _latest(self, context: Sequence[int], length: int) -> Iterator[tuple[int, int]]:
        """(matched length, end) of earlier occurrences of the context's suffix, best first: found by the longest n; of
        these, with ``_FULL`` tokens to copy before those cut short by the end of the text; the longest whole match; the
        latest, or of those cut short the longest continuation."""
        seen: set[int] = set()
        full = len(context) - min(length, _FULL)
        for match in self.conversation.falling(context, self.sizes.start, self.sizes.stop + 1):
            ends = match.where[-_LOOKED_AT:].tolist()
            found = [(end > full, -_matched(context, match.length, end), -end if end <= full else end) for end in ends]
            for _, matched, end in sorted(found):
                if abs(end) not in seen:  # a longer n has already drafted from here
                    seen.add(abs(end))
                    yield -matched, abs(end)

    def _merge(self, tree: DraftTree, context: Sequence[int], matched: int, end: int, length: int) -> None:
        """Hang one continuation into the tree; one that is there already adds neither node nor origin."""
        before, parent = len(tree), -1
        for token in context[end : end + length]:
            parent = tree.add(token, parent, None, len(tree.origins))
        if len(tree) > before:
            tree.origins.append(self.conversation.origin(end, matched))


def _matched(context: Sequence[int], size: int, end: int) -> int:
    """The length of the whole match, where an n-gram of ``size`` was looked up: the longer, the more to be trusted."""
    while size < min(end, _LONGEST) and context[end - 1 - size] == context[len(context) - 1 - size]:
        size += 1
    return size
