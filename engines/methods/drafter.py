"""What every drafter is given, and what it does. The loop calls ``start``, ``draft`` and ``learn``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.cost.budget import RESTING
from engines.errors import UsageProblem
from engines.methods.passages import described, is_described
from engines.methods.plug_in import guard, is_plug_in
from engines.model.feature_request import FeatureRequest
from engines.report.events import HeadReads, Layers

if TYPE_CHECKING:
    from engines.core.lossless_laws import Law
    from engines.cost.budget import Budget
    from engines.cost.curve import CostCurve
    from engines.datastores.search.dense import DenseStore
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.datastores.search.sparse import SparseStore
    from engines.heads.find_heads import Head
    from engines.model.causal_model import CausalModel
    from engines.tokenization import Detokenizer
    from engines.vocabularies import Translation


@dataclass(slots=True, kw_only=True)
class Resources:
    """What a drafter may use.

    Attributes:
        law: the law it drafts for: shared noise or random draws.
        vocab_size: width of the target's logits.
        target: the target itself, for drafters that draft with a part of it or read its hidden states.
        draft_model: a second causal model, where there is one.
        draft_price: t(n) of the draft model.
        translation: of the target's tokens to the draft model's; None where they are the same.
        heads: learned draft heads by kind (``engines.heads.head_config``); ``head_prices``: t(n) of each.
        available: of ``MethodSpec.needs`` what there is, in the order to take it (``methods.available``).
        end_tokens: tokens that end the answer: drafting past one is of no use.
        branches: whether the target can verify more than one path.
        budget: how much is worth drafting; None leaves drafts at the sizes of the options.
        open_datastores: the datastores of this run; ``datastores`` names those to search, none takes the default ones.
        words: tokens as text, for display.
        cancelled: asked in whatever takes long.
        progress: told (tokens done, and all) while a model of the drafter's own reads the prompt.
        memory: what drafters keep from run to run, by keys of their own; empty in each run where the text may depend
            on what is drafted.
        detail: drafts say on request what they left out (``Request.detail``), which takes time.
        keeps: answers may be kept on disk to draft from, and those that were kept may be read.
    """

    law: Law
    vocab_size: int
    target: CausalModel | None = None
    draft_model: CausalModel | None = None
    draft_price: CostCurve | None = None
    translation: Translation | None = None
    heads: Mapping[str, Head] = field(default_factory=dict)
    head_prices: Mapping[str, CostCurve] = field(default_factory=dict)
    available: tuple[str, ...] = ()
    end_tokens: frozenset[int] = frozenset()
    branches: bool = True
    budget: Budget | None = None
    open_datastores: OpenDatastores | None = None
    datastores: tuple[str, ...] = ()
    words: Detokenizer | None = None
    cancelled: Callable[[], bool] = lambda: False
    progress: Callable[[int, int], None] = lambda done, total: None
    memory: dict[Any, Any] = field(default_factory=dict)
    keeps: bool = False
    detail: bool = False


class Drafter:
    """Proposes draft trees; this one the empty tree, every round: the baseline of every speed-up. Subclasses override
    ``propose`` and, where they keep state, ``start`` and ``follow``.

    Attributes:
        budget: set where the option ``budget`` is "auto". ``judged_by``: of a part of another method, the budget that
            cuts its drafts later.
        features: hidden states of the target that it reads, in ``start`` and ``follow`` (``CausalModel.features``).
        searched: bytes on the disk of what it searches, by the name of the datastore and the file.
        layers: of self-speculation, once it started: what this answer's drafts leave out.
        reads: of a learned head: what it is, and what it reads.
        draws_chains: where the law draws, it drafts chains of tokens that were drawn.
    """

    budget: Budget | None = None
    judged_by: Budget | None = None
    features = FeatureRequest()
    layers: Layers | None = None
    reads: HeadReads | None = None
    draws_chains: bool = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if is_plug_in(cls):
            guard(cls)

    def __init__(self, resources: Resources, budget: str = "paper") -> None:
        self.resources = resources
        self.budget = resources.budget if budget == "auto" else None
        self.searched: dict[tuple[str, str], int] = {}
        self._following = 0.0  # seconds of ``follow`` after the last round: drafting has to win them back too

    def searches(self, stores: Sequence[SparseStore | DenseStore]) -> None:
        """Say which datastores it searches."""
        self.searched = {(store.name, path): size for store in stores for path, size in store.sizes.items()}

    def least_shares(self, match: int | None, depth: int, nodes: int) -> list[float]:
        """For each depth the share of what was found that a node needs, to be worth a row among as many as ``nodes``;
        0 where no budget decides, or where all that was found is shown. ``match``: as of ``Budget.least_shares``."""
        budget = self.budget or self.judged_by
        if budget is None or self.resources.detail:
            return [0.0] * depth
        return budget.least_shares(match, depth, nodes)

    def remark(self) -> str:
        """Why this drafter cannot be faster with these models, in a sentence; "" where it may."""
        return ""

    def start(self, outcome: Outcome) -> None:
        """A run begins; ``outcome`` is the prefill's."""

    def draft(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        """What a round verifies: the proposal, or nothing in a round of rest."""
        rests = self.budget is not None and self.budget.rests()
        tree = DraftTree(budget=RESTING) if rests else self.propose(context, limits)
        return tree if is_described(tree) else described(tree, self.resources.words, self.resources.detail)

    def propose(self, context: Sequence[int], limits: DraftLimits) -> DraftTree:
        """Guesses for the tokens after ``context``, whose last token is the root."""
        return DraftTree()

    def worth_verifying(self, tree: DraftTree, draft_seconds: float = 0.0) -> DraftTree:
        """The part of a draft that can be written, and of that what the budget, where one decides, verifies.
        ``draft_seconds``: as of ``Budget.prune``."""
        tree = tree.ending_at(self.resources.end_tokens)
        return tree if self.budget is None else self.budget.prune(tree, draft_seconds)

    def learn(self, outcome: Outcome) -> None:
        """The verdict on the last proposal."""
        if self.budget is not None:
            verdict, seconds = outcome.verdict, outcome.draft_seconds + self._following
            self.budget.learn(outcome.tree, tuple(verdict.path), seconds, outcome.verify_seconds, verdict.tokens)
        clock = perf_counter()
        self.follow(outcome)
        self._following = perf_counter() - clock

    def follow(self, outcome: Outcome) -> None:
        """What a round brought, whoever's proposal it was: a drafter that is part of another is told this alone, since
        the one budget of a run learns once."""


def chosen_row(outcome: Outcome) -> int:
    """The row of the forward that the last emitted token was chosen from."""
    before = len(outcome.verdict.tokens) - 1
    return outcome.verdict.path[before - 1] + 1 if before else 0


def reach(tree: DraftTree) -> list[float]:
    """For each node the drafter's probability of the path to it; nodes without a probability count as certain."""
    found: list[float] = []
    for parent, prob in zip(tree.parents, tree.probs):
        found.append((found[parent] if parent >= 0 else 1.0) * (1.0 if prob is None else prob))
    return found


def in_order(**bounds: int) -> None:
    """Raises UsageProblem where the first of two options is above the second."""
    (low, least), (high, most) = bounds.items()
    if least > most:
        raise UsageProblem(f"{low}={least} is above {high}={most}", f"set {low} to at most {high}")
