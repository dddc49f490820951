"""How much to draft: the size that maximises expected tokens a second, by t(n) and the acceptance seen so far.

A budget decides on counts and on a cost curve that stays fixed for the run, never on a clock: so a run under the
rejection law, whose text depends on what is drafted, can be repeated with its seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engines.cost import CostCurve, best_length
from engines.events import Origin
from engines.tree import DraftTree

_STRENGTH = 4.0  # rounds that the prior is worth
_MEMORY = 0.97  # of the evidence, a round: what is skipped long enough is tried again
_TRIES = 4  # rounds of a run that draft in any case, so that what is said to not pay has been measured
_CERTAIN = 0.995  # no estimate is surer

Kind = tuple[str, int, int]
"""What acceptance is counted by: source, class of the match length, rank among the candidates of its tree."""

LEVELS: Kind = ("levels", 0, 0)
"""Counts whole levels of a tree: whether any node of a depth was accepted."""


@dataclass(slots=True)
class Counts:
    """Acceptance by depth of one kind of draft (index 0 is depth 1), old rounds fading.

    Attributes:
        tried: nodes judged: their parent was accepted.
        kept: of these, accepted.
        foretold: sum of the drafter's own probabilities over those judged that had one.
    """

    tried: list[float] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    foretold: list[float] = field(default_factory=list)

    def fade(self) -> None:
        for column in (self.tried, self.kept, self.foretold):
            column[:] = [count * _MEMORY for count in column]

    def add(self, depth: int, kept: bool, prob: float | None) -> None:
        while len(self.tried) < depth:
            for column in (self.tried, self.kept, self.foretold):
                column.append(0.0)
        self.tried[depth - 1] += 1
        self.kept[depth - 1] += kept
        self.foretold[depth - 1] += prob or 0.0


class Acceptance:
    """What has been seen of drafts so far, by kind and depth; a prior stands in where nothing has.

    The chance of a depth, given the depths above it, is the mean of a beta distribution whose prior mean is the
    estimate of the depth above: an unseen depth behaves as the last seen one.
    """

    def __init__(self) -> None:
        self._counts: dict[Kind, Counts] = {}

    def chances(self, kind: Kind, depth: int) -> list[float]:
        """For depths 1..depth the probability that a node is accepted once its parent is."""
        counts, chance, out = self._counts.get(kind), prior(kind), []
        for d in range(depth):
            if counts is not None and d < len(counts.tried):
                chance = (counts.kept[d] + _STRENGTH * chance) / (counts.tried[d] + _STRENGTH)
            out.append(min(chance, _CERTAIN))
        return out

    def honesty(self, kind: Kind, depth: int) -> list[float]:
        """For depths 1..depth the factor by which the drafter's own probabilities come true."""
        counts, factor, out = self._counts.get(kind), 1.0, []
        for d in range(depth):
            if counts is not None and d < len(counts.tried):
                factor = (counts.kept[d] + _STRENGTH * factor) / (counts.foretold[d] + _STRENGTH)
            out.append(factor)
        return out

    def learn(self, tree: DraftTree, path: Sequence[int], seen: Sequence[Kind]) -> None:
        """Count a verdict, and let fade what is known of ``seen``, the kinds of this round, drafted or not."""
        for kind in set(seen):
            if kind in self._counts:
                self._counts[kind].fade()
        end = path[-1] if path else -1
        for depth in range(1, len(path) + 1 + (end in tree.parents)):
            self._counts.setdefault(LEVELS, Counts()).add(depth, depth <= len(path), None)
        kinds, accepted = kinds_of(tree), {-1, *path}
        for node, (parent, depth) in enumerate(zip(tree.parents, tree.depths())):
            if parent in accepted:
                counts = self._counts.setdefault(kinds[tree.origin[node]], Counts())
                counts.add(depth, node in accepted, tree.probs[node])


class Budget:
    """One run's decisions on how much to draft.

    Args:
        price: t(n) of the target.
        acceptance: what is known; shared between runs where the text cannot depend on it.
    """

    def __init__(self, price: CostCurve, acceptance: Acceptance | None = None) -> None:
        self.price = price
        self.acceptance = acceptance or Acceptance()
        self._seen: list[Kind] = []
        self._rounds = 0

    @property
    def trying(self) -> bool:
        """The first rounds of a run draft whatever is expected of them."""
        return self._rounds < _TRIES

    def length(self, kind: Kind, most: int, draft_seconds: Callable[[int], float], width: int = 1) -> int:
        """Tokens of a chain, or levels of a tree, to draft: 0..most, decided before drafting.

        Args:
            draft_seconds: time of drafting n of them, n >= 1.
            width: rows to verify for each of them.
        """
        self._seen.append(kind)
        survival, alive = [], 1.0
        for chance in self.acceptance.chances(kind, most):
            alive *= chance
            survival.append(alive)
        seconds = [self.price.at(1)] + [self.price.at(1 + width * n) + draft_seconds(n) for n in range(1, most + 1)]
        return max(best_length(survival, seconds), min(1, most) if self.trying else 0)

    def prune(self, tree: DraftTree, draft_seconds: float = 0.0) -> DraftTree:
        """The nodes of a tree that are worth verifying, its drafting paid already.

        Only for drafts whose nodes are point masses: leaving out a node that dice chose would bias the rejection law.
        """
        self._seen += kinds_of(tree)
        if not len(tree):
            return tree
        values = self.values(tree)
        order = sorted(range(len(tree)), key=lambda node: -values[node])  # stable: a parent stays before its child
        seconds = [self.price.at(1 + n) + draft_seconds for n in range(len(tree) + 1)]
        count = best_length([values[node] for node in order], seconds)
        count = max(count, 1 if self.trying else 0)
        kept = tree.select(sorted(order[:count])) if count < len(tree) else tree
        expected = 1 + sum(values[node] for node in order[:count])
        kept.note = {**tree.note, "budget": f"{count} of {len(tree)}", "expected": round(expected, 2)}
        return kept

    def values(self, tree: DraftTree) -> list[float]:
        """For each node the probability that it is accepted, by the drafter's own belief as far as that came true, or
        by its depth where the drafter has none. Never above its parent's."""
        kinds, depths, deepest = kinds_of(tree), tree.depths(), max(tree.depths(), default=0)
        chances = {kind: self.acceptance.chances(kind, deepest) for kind in set(kinds)}
        honesty = {kind: self.acceptance.honesty(kind, deepest) for kind in set(kinds)}
        values: list[float] = []
        for node, parent in enumerate(tree.parents):
            kind, depth, prob = kinds[tree.origin[node]], depths[node] - 1, tree.probs[node]
            chance = chances[kind][depth] if prob is None else min(prob * honesty[kind][depth], _CERTAIN)
            values.append(chance * (values[parent] if parent >= 0 else 1.0))
        return values

    def learn(self, tree: DraftTree, path: Sequence[int]) -> None:
        """The verdict on the last draft."""
        self.acceptance.learn(tree, path, self._seen)
        self._seen = []
        self._rounds += 1


def kind_of(origin: Origin, rank: int = 0) -> Kind:
    """What an origin's acceptance is counted by: long matches deserve more trust than short ones, the first candidate
    more than the fourth."""
    match = origin.match or 0
    return origin.source, match if match <= 3 else 4 if match <= 6 else 7 if match <= 12 else 13, min(rank, 3)


def kinds_of(tree: DraftTree) -> list[Kind]:
    """The kind of each origin of a tree."""
    return [kind_of(origin, rank) for rank, origin in enumerate(tree.origins)]


def prior(kind: Kind) -> float:
    """Acceptance expected before any is seen: of a draft model much, of a copy the more the longer its match."""
    _, match, rank = kind
    return (match / (match + 2) if match else 0.7) / (1 + rank)
