"""A dynamic datastore, this conversation, beside the static ones: whichever promises most drafts the round.

What DReSD's authors leave as future work. The score is that of SuffixDecoding (Oliaro et al. 2024): the sum of the
probabilities of a draft's paths, which is the number of tokens expected to be accepted. With ``budget=auto`` each
source's probabilities count as far as they came true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from time import perf_counter

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources, in_order
from engines.methods.dresd import SPEC as DRESD
from engines.methods.hybrid import CONVERSATION, HybridNote
from engines.methods.rest import SPEC as REST
from engines.methods.rest import RestNote
from engines.methods.shared.conversation import Conversation
from engines.methods.shared.found_tree import from_conversation
from engines.methods.spec import MethodSpec
from engines.report.events import Retrieval


class Dynamic(Drafter):
    """The longest suffix of the text in the text itself, as ``rest`` looks it up in a datastore."""

    def __init__(self, resources: Resources, c: int, length: int, n_max: int, n_min: int) -> None:
        super().__init__(resources)
        self.conversation = Conversation()
        self.c, self.length, self.n_max, self.n_min = c, length, n_max, n_min

    def start(self, outcome: Outcome) -> None:
        self.conversation.start(outcome)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        from engines.datastores.search.trie import heaviest

        clock = perf_counter()
        self.conversation.grow(context)
        store = self.conversation.store
        match = store.longest(context, self.n_max, self.n_min)
        if match is None:
            return DraftTree(retrieval=Retrieval(perf_counter() - clock, 0))
        found = store.continuations(match, min(self.length, limits.depth))
        seconds = perf_counter() - clock
        chosen = heaviest(found, min(self.c, limits.nodes))
        tree = from_conversation(found, chosen, self.conversation, seconds)
        tree.note = RestNote(match=match.length)
        return tree


class Hybrid(Drafter):
    """Sources that draft each round; the best-scoring draft is verified."""

    def __init__(
        self, resources: Resources, *, budget: str, c: int, length: int, n_max: int, n_min: int, drafts: int
    ) -> None:
        super().__init__(resources, budget)
        in_order(n_min=n_min, n_max=n_max)
        exact = {"c": c, "length": length, "n_max": n_max, "n_min": n_min}
        self.sources: dict[str, Drafter] = {CONVERSATION: Dynamic(resources, **exact)}
        given = {REST.id: exact, DRESD.id: {"drafts": drafts, "length": length}}
        for spec, names in _static(resources):
            options = spec.parse({"budget": "paper", **given[spec.id]})  # the choice comes before the budget's
            self.sources[spec.id] = spec.load_drafter()(replace(resources, datastores=names), **options)
        self.datastores = tuple(dict.fromkeys(name for part in self.sources.values() for name in part.datastores))
        self.features = reduce(or_, (part.features for part in self.sources.values()))

    def start(self, outcome: Outcome) -> None:
        for part in self.sources.values():
            part.start(outcome)

    def follow(self, outcome: Outcome) -> None:
        for part in self.sources.values():
            part.follow(outcome)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        offers = {name: part.propose(context, limits) for name, part in self.sources.items()}
        score = self.budget.score if self.budget else expected
        scores = {name: score(tree) for name, tree in offers.items()}
        best = max(scores, key=scores.__getitem__)  # of equal ones the first
        tree = offers[best]
        seconds = sum(offer.retrieval.seconds for offer in offers.values())
        tree.retrieval = replace(tree.retrieval, seconds=seconds)
        tree.note = HybridNote(
            **(tree.note.plain() if tree.note is not None else {}), drafted_by=best if len(tree) else None,
            scores={name: round(score, 2) for name, score in scores.items()},
        )
        return self.budget.prune(tree) if self.budget else tree


def _static(resources: Resources) -> list[tuple[MethodSpec, tuple[str, ...]]]:
    """For each engine that searches datastores those that it can: of the named ones, or the default ones.

    Raises:
        UsageProblem, DatastoreProblem: one that is named can't be searched.
    """
    open_datastores, out = resources.open_datastores, []
    if open_datastores is None:
        return out
    for spec, dense in ((REST, False), (DRESD, True)):
        fitting = open_datastores.fitting(dense) if resources.datastores else open_datastores.default(dense)
        names = tuple(name for name in resources.datastores or fitting if name in fitting)
        if names:
            out.append((spec, names))
    for name in resources.datastores:
        if all(name not in names for _, names in out):
            open_datastores.sparse([name])  # says why
    return out


def expected(tree: DraftTree) -> float:
    """Accepted tokens expected by the draft's own probabilities: the sum of those of its paths."""
    reach: list[float] = []
    for parent, prob in zip(tree.parents, tree.probs):
        reach.append((reach[parent] if parent >= 0 else 1.0) * (1.0 if prob is None else prob))
    return sum(reach)
