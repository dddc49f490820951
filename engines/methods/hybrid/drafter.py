"""A dynamic datastore, this conversation, beside the static ones: whichever promises most drafts the round.

What DReSD's authors leave as future work. The score is that of SuffixDecoding (Oliaro et al. 2024): the sum of the
probabilities of a draft's paths, which is the number of tokens expected to be accepted. With ``budget=auto`` each
source's probabilities count as far as they came true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from engines.core.tree import DraftTree
from engines.errors import UsageProblem
from engines.methods.drafter import Drafter, DraftLimits, Outcome, Resources
from engines.methods.options import BUDGET, Option
from engines.methods.registry import EngineSpec, drafter_class, find
from engines.report.events import Origin, Retrieval

SPEC = EngineSpec(
    id="hybrid",
    title="Hybrid",
    summary="Searches this conversation and the datastores, sparse and dense, and drafts what promises most.",
    source="future work of Gritta et al. 2025 (DReSD); score: Oliaro et al. 2024 (SuffixDecoding)",
    options=(
        BUDGET,
        Option("c", 64, "Exact match: most nodes of the trie that are drafted.", 1, 256),
        Option("length", 10, "Tokens of a continuation.", 1, 64),
        Option("n_max", 16, "Exact match: longest suffix looked for, in tokens.", 1, 64),
        Option("n_min", 2, "Exact match: shortest suffix that counts.", 1, 64),
        Option("drafts", 10, "Dense datastores: nearest neighbours that are drafted.", 1, 64),
    ),
    searches=True,
)


class Dynamic(Drafter):
    """The longest suffix of the text in the text itself, as ``rest`` looks it up in a datastore."""

    def __init__(self, resources: Resources, c: int, length: int, n_max: int, n_min: int) -> None:
        from engines.methods.shared.conversation import Conversation

        super().__init__(resources)
        self.conversation = Conversation()
        self.c, self.length, self.n_max, self.n_min = c, length, n_max, n_min

    def start(self, outcome: Outcome) -> None:
        self.conversation.start(outcome)

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        from engines.datastores.search.trie import heaviest

        clock = perf_counter()
        self.conversation.grow(context)
        store = self.conversation.store
        match = store.longest(context, self.n_max, self.n_min)
        if match is None:
            return DraftTree(retrieval=Retrieval(perf_counter() - clock, 0))
        found = store.continuations(match, min(self.length, room.depth))
        seconds = perf_counter() - clock
        chosen = heaviest(found, min(self.c, room.nodes))
        known: dict[Origin, int] = {}
        for row in chosen.rows:
            known.setdefault(self.conversation.origin(int(found.positions[row]), match.length), len(known))
        origin = [known[self.conversation.origin(int(found.positions[row]), match.length)] for row in chosen.rows]
        return DraftTree(
            chosen.tokens, chosen.parents, list(chosen.probs), origin, list(known),
            retrieval=Retrieval(seconds, match.length, match.count, len(found)), note={"match": match.length},
        )


class Hybrid(Drafter):
    """Sources that draft each round; the best-scoring draft is verified."""

    def __init__(
        self, resources: Resources, *, budget: str, c: int, length: int, n_max: int, n_min: int, drafts: int
    ) -> None:
        super().__init__(resources, budget)
        if n_min > n_max:
            raise UsageProblem(f"n_min={n_min} is above n_max={n_max}", "set n_min to at most n_max")
        exact = {"c": c, "length": length, "n_max": n_max, "n_min": n_min}
        self.sources: dict[str, Drafter] = {"dynamic": Dynamic(resources, **exact)}
        given = {"rest": exact, "dresd": {"drafts": drafts, "length": length}}
        for engine, names in _static(resources).items():
            options = find(engine).parse({"budget": "paper", **given[engine]})  # the choice comes before the budget's
            self.sources[engine] = drafter_class(engine)(replace(resources, datastores=names), **options)
        self.datastores = tuple(dict.fromkeys(name for part in self.sources.values() for name in part.datastores))
        self.wants_hidden = any(part.wants_hidden for part in self.sources.values())

    def start(self, outcome: Outcome) -> None:
        for part in self.sources.values():
            part.start(outcome)

    def follow(self, outcome: Outcome) -> None:
        for part in self.sources.values():
            part.follow(outcome)

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        offers = {name: part.propose(context, room) for name, part in self.sources.items()}
        score = self.budget.score if self.budget else expected
        scores = {name: score(tree) for name, tree in offers.items()}
        best = max(scores, key=scores.__getitem__)  # of equal ones the first
        tree = offers[best]
        seconds = sum(offer.retrieval.seconds for offer in offers.values())
        tree.retrieval = replace(tree.retrieval, seconds=seconds)
        said = {f"score of {name}": round(score, 2) for name, score in scores.items()}
        tree.note = {"drafted by": best if len(tree) else "none", **said, **tree.note}
        return self.budget.prune(tree) if self.budget else tree


def _static(resources: Resources) -> dict[str, tuple[str, ...]]:
    """For each engine that searches datastores those that it can: of the named ones, or the default ones.

    Raises:
        UsageProblem, DatastoreProblem: one that is named can't be searched.
    """
    shelf, out = resources.shelf, {}
    if shelf is None:
        return out
    for engine, dense in (("rest", False), ("dresd", True)):
        fitting = shelf.fitting(dense) if resources.datastores else shelf.default(dense)
        names = tuple(name for name in resources.datastores or fitting if name in fitting)
        if names:
            out[engine] = names
    for name in resources.datastores:
        if all(name not in names for names in out.values()):
            shelf.sparse([name])  # says why
    return out


def expected(tree: DraftTree) -> float:
    """Accepted tokens expected by the draft's own probabilities: the sum of those of its paths."""
    reach: list[float] = []
    for parent, prob in zip(tree.parents, tree.probs):
        reach.append((reach[parent] if parent >= 0 else 1.0) * (1.0 if prob is None else prob))
    return sum(reach)


DRAFTER = Hybrid
