"""Suffix decoding: the continuations of the end of the text that are most frequent, in this text and in past answers.

Source: Oliaro et al. 2025, "SuffixDecoding". For every suffix of the text that occurs, and each of the two tries, there
is a draft as large as the match is long (``factor``, ``offset``). The score of a draft is the number of tokens expected
to be accepted, the sum of its nodes' probabilities; the best score is taken, of equal ones the longer match.
Differences: an occurrence that nothing follows is not counted, and of a suffix only the latest 160 are; with
``budget=auto`` the probabilities count as far as those after such matches came true, and the price decides how much is
verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import nextafter

from engines import folders
from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources
from engines.methods.origins import HISTORY
from engines.methods.shared.conversation import Conversation
from engines.methods.shared.counted_text import Continued, CountedText
from engines.methods.shared.past_answers import MOST_TOKENS, PastAnswers
from engines.methods.suffix import SuffixNote
from engines.report.events import Origin


class AnswerIndex:
    """The past answers of a model as counted text, up to date at the start of each answer."""

    def __init__(self, kept: PastAnswers, most: int) -> None:
        self.kept, self.most, self.text = kept, most, CountedText()

    def refresh(self) -> None:
        """Take in what was kept since, by this process and others; forget what was forgotten."""
        fresh, answers = self.kept.news()
        if not fresh and (len(self.text) > 2 * MOST_TOKENS or len(self.text.begins) > 2 * self.most):
            self.kept = PastAnswers(self.kept.fingerprint, self.kept.vocab_size)
            fresh, answers = self.kept.news()
        if fresh:
            self.text = CountedText()
        for answer in answers[-self.most :]:
            self.text.extend(answer.tolist())
            self.text.begin()


class Suffix(Drafter):
    """Count tries of this text and of past answers."""

    def __init__(
        self, resources: Resources, *, budget: str, shape: str, depth: int, num_tokens: int, factor: float,
        offset: int, min_prob: float, history: int,
    ) -> None:
        super().__init__(resources, budget)
        self.chain, self.depth, self.num_tokens = shape == "chain", depth, num_tokens
        self.factor, self.offset, self.min_prob = factor, offset, min_prob
        self.text = Conversation()
        self.begin = 0
        self.history: AnswerIndex | None = None
        model = resources.target.fingerprint if resources.target is not None else ""
        if history and model and resources.keeps and not folders.keeps_nothing():
            key = ("past answers", history)
            self.history = resources.memory.get(key) or AnswerIndex(PastAnswers(model, resources.vocab_size), history)
            resources.memory[key] = self.history

    def start(self, outcome: Outcome) -> None:
        self.text, self.begin = Conversation(outcome.context, outcome.prompt_length), outcome.position
        if self.history is not None:
            self.history.refresh()
        self._finish(outcome)

    def follow(self, outcome: Outcome) -> None:
        self._finish(outcome)

    def _finish(self, outcome: Outcome) -> None:
        """Keep the answer once it is complete; where it continues another, which was kept, what is new of it."""
        if self.history is not None and outcome.reason is not None:
            self.history.kept.add(outcome.context[self.begin :])

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        self.text.grow(context)
        most = min(self.num_tokens, limits.depth, limits.nodes)
        past = self._best(self.history.text, context, most) if self.history is not None else None
        drafts = (self._best(self.text, context, most, past), self.text), (past, self.history and self.history.text)
        found = [(draft, text) for draft, text in drafts if draft is not None and draft.tokens]
        answers = len(self.history.text.begins) - 1 if self.history is not None else None
        if not found:
            return DraftTree(note=SuffixNote(match=0, answers=answers))
        if len(found) > 1 and (surer := _surer(*(draft for draft, _ in found))) is not None:
            found = [found[surer]]
        trees = [self._tree(draft, text, answers) for draft, text in found]
        tree = trees[0] if len(trees) == 1 else max(
            trees, key=self.budget.score if self.budget else lambda tree: tree.note.score)
        return self.worth_verifying(tree)

    def _best(
        self, text: CountedText, context: Sequence[int], most: int, rival: Continued | None = None
    ) -> Continued | None:
        """The draft with the best score of all suffixes of the context that occur in a text; None where ``rival``, of
        another text, follows as long a match at least and scores better than all of them."""
        best, score = None, 0.0
        for match, places in text.suffixes(context, self.depth):
            if rival is not None and best is None and match <= rival.match:
                score, rival = nextafter(sum(rival.reach), 0.0), None
            nodes = min(most, int(self.factor * match + self.offset))
            if nodes <= score:  # what shorter matches could still reach
                break
            found = text.after(match, places, nodes, self.min_prob, self.chain, score, self.resources.end_tokens)
            if (reached := sum(found.reach)) > score:
                best, score = found, reached
        return best

    def _tree(self, found: Continued, text: CountedText, answers: int | None) -> DraftTree:
        ends = [first for first, _ in found.pieces[1:]] + [len(found.tokens)]
        origin = [i for i, ((first, _), end) in enumerate(zip(found.pieces, ends)) for _ in range(first, end)]
        return DraftTree(
            tokens=found.tokens, parents=found.parents, probs=list(found.shares), origin=origin,
            origins=[self._origin(place, text, found.match) for _, place in found.pieces],
            note=SuffixNote(match=found.match, hits=found.hits, score=round(sum(found.reach), 2), answers=answers),
        )

    def _origin(self, place: int, text: CountedText, match: int) -> Origin:
        number, index = text.text_of(place)
        if text is self.text:
            return self.text.origin(index, match)
        return Origin(HISTORY.name, place=index, document=f"answer {number + 1}", match=match)


def _surer(one: Continued, other: Continued) -> int | None:
    """Which of two drafts follows the longer match and scores better; None where these disagree."""
    longer, better = one.match - other.match, sum(one.reach) - sum(other.reach)
    if longer >= 0 and better >= 0:
        return 0
    return 1 if longer <= 0 and better <= 0 else None
