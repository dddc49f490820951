"""Sources that cost little draft, and the draft that promises most is verified; where a draft head or a draft model
promises more than that, it drafts instead.

What DReSD's authors leave as future work. Score and turn to a model are those of SuffixDecoding (Oliaro et al. 2025):
the sum of the probabilities of a draft's paths is the number of tokens expected to be accepted; below a threshold a
model drafts. With ``budget=auto`` each source's probabilities count as far as they came true, and expected tokens a
second are compared. The text that is written judges the draft of each source, verified or not. A search takes time, a
tenth of a small model's pass: a source whose drafts do not win that back searches only now and then, so that it loses
no more than a small share of all time. A model costs more, and is judged only where it drafts, so it may lose less; of
one whose agreement with the target is not known less is expected than where it drafts alone. The turn to the model is
decided before it draws anything, so that the rejection law stays exact.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from time import perf_counter

from engines import methods
from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.methods.drafter import Drafter, Resources, in_order, reach
from engines.methods.hybrid import SPEC, HybridNote
from engines.methods.shared.predictor_drafter import PredictorDrafter
from engines.methods.spec import MethodSpec
from engines.report.events import Retrieval

_SHARED = tuple(name for name in HybridNote.__dataclass_fields__ if name not in (
    "drafted_by", "scores", "copied_rate", "model_rate"))


class Hybrid(Drafter):
    """The methods that say they can be a part of others, as far as what they need is available.

    Attributes:
        sources: by the id of the method, those that search.
        model: the one that drafts in their place, with its method's id; None where there is none.
    """

    def __init__(self, resources: Resources, *, budget: str, model: bool, threshold: float, **options: int) -> None:
        super().__init__(resources, budget)
        in_order(n_min=options["n_min"], n_max=options["n_max"])
        self.threshold = threshold
        self.sources: dict[str, Drafter] = {}
        self.model: tuple[str, PredictorDrafter] | None = None
        taken = SPEC.used({"model": model}, resources.available)
        # The choice comes before the budget's. Nodes that are drafted for display alone would change it, and so the
        # text, where that depends on the draft; there the budget is not timed.
        unpruned = replace(resources, budget=None, detail=resources.detail and (not self.budget or self.budget.timed))
        for spec, stores in _parts(resources):
            shared = {option.name: options[option.name] for option in spec.options if option.name in options}
            kind, given = spec.load_drafter(), spec.parse({"budget": budget, **shared})
            if not issubclass(kind, PredictorDrafter):
                source = self.sources[spec.id] = kind(replace(unpruned, datastores=stores), **given)
                source.judged_by = self.budget
            elif spec.needs[0] in taken:
                self.model = spec.id, kind(resources, **given)
                if self.budget is not None:
                    self.budget.compete(self.model[1].expected)
        self.draws_chains = self.model is not None and self.model[1].draws_chains
        self._offers: dict[str, tuple[DraftTree, float]] = {}  # of this round, with the seconds that each took
        self._taken = ""  # who drafted what is verified: a source, or the model
        self._modelled = 0.0  # tokens a second that the model would have brought in this round
        self._rates: dict[str, float] = {}  # of the same decision, as in the note
        self._all = [*self.sources.values(), *([self.model[1]] if self.model else [])]
        self.searched = reduce(or_, (part.searched for part in self._all), {})  # two parts may search one file
        self.features = reduce(or_, (part.features for part in self._all))
        self.reads = next((part.reads for part in self._all if part.reads is not None), None)

    def start(self, outcome: Outcome) -> None:
        for part in self._all:
            part.start(outcome)

    def follow(self, outcome: Outcome) -> None:
        for part in self._all:
            part.follow(outcome)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        offers = self._search(context, limits)
        score = self.budget.score if self.budget else expected
        scores = {name: score(tree) for name, tree in offers.items()}
        best = max(scores, key=scores.__getitem__, default="")  # of equal ones the first
        tree = offered = offers.get(best, DraftTree())
        modelled = False
        if self.model is not None and self._model_promises_more(tree, scores.get(best, 0.0), context, limits):
            clock = perf_counter()
            drafted = self.model[1].propose(context, limits)
            if self.budget is not None:
                self.budget.drafted(perf_counter() - clock)
            if len(drafted):
                best, tree, modelled = self.model[0], drafted, True
        self._taken = best
        tree.retrieval = _lookup(offered, offers.values()) if offers else None
        tree.note = replace(_note(tree, best if len(tree) else None, scores), **self._rates)
        return tree if modelled else self.worth_verifying(tree)

    def learn(self, outcome: Outcome) -> None:
        if self.budget is not None and not self.budget.resting:
            self._settle(outcome)
        super().learn(outcome)

    def _search(self, context: Sequence[int], limits: DraftLimits) -> dict[str, DraftTree]:
        """The drafts of the sources that search in this round."""
        self._offers.clear()
        for name, part in self.sources.items():
            if self.budget is None or self.resources.detail or self.budget.affords(name):
                clock = perf_counter()
                tree = part.propose(context, limits)
                self._offers[name] = tree, perf_counter() - clock
        return {name: tree for name, (tree, _) in self._offers.items()}

    def _settle(self, outcome: Outcome) -> None:
        """Say what each search of the round took, and what the one whose draft was verified won over the others and
        over the model."""
        right = {name: matched(tree, outcome.verdict.tokens) for name, (tree, _) in self._offers.items()}
        others = {name: self.budget.won(depth, depth, self._modelled) for name, depth in right.items()}
        others.pop(self._taken, None)
        for name, (_, seconds) in self._offers.items():
            won = 0.0
            if name == self._taken:
                won = self.budget.won(len(outcome.verdict.path), len(outcome.tree), self._modelled)
                won -= max(others.values(), default=0.0)
            self.budget.searched(name, seconds, won)
        self._offers.clear()  # a round without room for a draft searches nothing

    def _model_promises_more(self, tree: DraftTree, score: float, context: Sequence[int], limits: DraftLimits) -> bool:
        """Whether the model is expected to bring more than the best draft of the sources."""
        rate = self.model[1].rate(context, limits)
        self._modelled, self._rates = rate or 0.0, {}
        if rate is None or self.budget is None:
            return score < self.threshold
        copied = self.budget.rate(tree)
        self._rates = {"copied_rate": round(copied, 2), "model_rate": round(rate, 2)}
        return rate > copied


def _lookup(offered: DraftTree, offers: Collection[DraftTree]) -> Retrieval:
    """What the best source found, and the time of all searches in datastores."""
    match, hits = getattr(offered.note, "match", None) or 0, getattr(offered.note, "hits", None) or 0
    found = offered.retrieval or Retrieval(0.0, match=match, hits=hits, used=hits)
    return replace(found, seconds=sum(offer.retrieval.seconds for offer in offers if offer.retrieval is not None))


def _note(tree: DraftTree, drafted_by: str | None, scores: dict[str, float]) -> HybridNote:
    """The source's own remarks, as far as the hybrid has a field for them, and the scores."""
    own = {name: getattr(tree.note, name, None) for name in _SHARED}
    return HybridNote(**own, drafted_by=drafted_by, scores={name: round(score, 2) for name, score in scores.items()})


def _parts(resources: Resources) -> list[tuple[MethodSpec, tuple[str, ...]]]:
    """The methods that can be a part here, each with the datastores that it searches: of the named ones, or the default
    ones. Raises UsageProblem, DatastoreProblem: one that is named can't be searched."""
    stores, out = resources.open_datastores, []
    there = set(resources.available)
    for spec in methods.specs():
        searched = [need for need in spec.needs if "datastore" in need]
        if not spec.drafts_from or not there.issuperset(set(spec.needs).difference(searched)):
            continue
        names = _names(resources, "dense" in searched[0]) if searched and stores is not None else ()
        if names or not searched:
            out.append((spec, names))
    for name in resources.datastores:
        if stores is not None and all(name not in names for _, names in out):
            stores.sparse([name])  # says why
    return out


def _names(resources: Resources, dense: bool) -> tuple[str, ...]:
    """The datastores to search, of the named ones or the default ones."""
    stores = resources.open_datastores
    fitting = stores.fitting(dense) if resources.datastores else stores.default(dense)
    return tuple(name for name in resources.datastores or fitting if name in fitting)


def matched(tree: DraftTree, said: Sequence[int]) -> int:
    """How many tokens of a text a path of a draft gives."""
    depth = {-1: 0}
    for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens)):
        before = depth.get(parent)
        if before is not None and before < len(said) and said[before] == token:
            depth[node] = before + 1
    return max(depth.values())


def expected(tree: DraftTree) -> float:
    """Accepted tokens expected by the draft's own probabilities: the sum of those of its paths."""
    return sum(reach(tree))
