"""What the loop asks of a drafter, and what it tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engines.core.tree import DraftTree
from engines.report.event_types import Layers

if TYPE_CHECKING:
    import torch

    from engines.cost.budget import Budget
    from engines.cost.curve import CostCurve
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.detokenizer import Detokenizer
    from engines.laws import Law
    from engines.model.causal_model import CausalModel


@dataclass(frozen=True, slots=True)
class DraftLimits:
    """What a draft may still use: ``depth`` tokens on a path, ``nodes`` in all."""

    depth: int
    nodes: int


@dataclass(frozen=True, slots=True)
class TreeDraft:
    """What a tree drafter hands to one that it is a part of (its method ``grow``): a tree from which no budget chose.

    Attributes:
        tree: its nodes are point masses, siblings distinct.
        seconds: what drafting it takes, by the drafter's price; 0 where that is not known.
        favourites: the drafter's likeliest first tokens, the best first; empty where it was not asked.
    """

    tree: DraftTree
    seconds: float = 0.0
    favourites: tuple[int, ...] = ()


@dataclass(slots=True)
class Outcome:
    """What a forward of the target brought, the same object after the prefill and after each round.

    Attributes:
        context: all token ids so far, prompt and answer, the newly emitted ones included.
        prompt_length: how many of them are the prompt.
        tree: what was verified (empty after the prefill).
        path: accepted nodes, root to leaf.
        emitted: tokens added.
        logits: float [rows, vocabulary]: row 0 is the root, row i + 1 is node i; after the prefill, one row.
        hidden: for drafters that ask for it, the target's last hidden states [rows, width] of the same rows; else None.
        draft_seconds, verify_seconds: what drafting and the forward took; 0 after the prefill.
    """

    context: Sequence[int]
    prompt_length: int
    tree: DraftTree
    path: tuple[int, ...]
    emitted: tuple[int, ...]
    logits: torch.Tensor
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    hidden: torch.Tensor | None = None


@dataclass(slots=True)
class Resources:
    """What a drafter may use.

    Attributes:
        law: the law it drafts for (``engines.laws.Law``): shared noise or dice.
        vocab_size: width of the target's logits.
        draft_model: a second causal model (``engines.model.causal_model.CausalModel``), where there is one.
        end_tokens: tokens that end the answer: drafting past one is of no use.
        branches: whether the target can verify more than one path.
        budget: how much is worth drafting (``engines.cost.budget.Budget``); None leaves drafts at the sizes of the
            options.
        draft_price: t(n) of the draft model.
        shelf: the datastores of this run (``engines.datastores.search.open_datastores.OpenDatastores``).
        words: tokens as text, for display.
        datastores: names of those to search; none takes the shelf's default.
        cancelled: asked in whatever takes long.
        target: the target itself, for drafters that draft with a part of it.
        memory: what drafters keep from run to run, by keys of their own; empty in each run where the text may depend
            on what is drafted.
    """

    law: Law
    vocab_size: int
    draft_model: CausalModel | None = None
    end_tokens: frozenset[int] = frozenset()
    branches: bool = True
    budget: Budget | None = None
    draft_price: CostCurve | None = None
    shelf: OpenDatastores | None = None
    words: Detokenizer | None = None
    datastores: tuple[str, ...] = ()
    cancelled: Callable[[], bool] = lambda: False
    target: CausalModel | None = None
    memory: dict[Any, Any] = field(default_factory=dict)


class Drafter:
    """Proposes draft trees. Subclasses override ``propose`` and, where they keep state, ``start`` and ``follow``.

    Attributes:
        budget: set where the option ``budget`` is "auto".
        wants_hidden: whether outcomes shall carry the target's last hidden states.
        wants_cosines: whether the target shall measure the cosines of its sublayers (``CausalModel.cosines``).
        datastores: names of those it searches.
        layers: of self-speculation, once it started: what this answer's drafts leave out.
    """

    budget: Budget | None = None
    wants_hidden = False
    wants_cosines = False
    datastores: tuple[str, ...] = ()
    layers: Layers | None = None

    def __init__(self, resources: Resources, budget: str = "paper") -> None:
        self.resources = resources
        self.budget = resources.budget if budget == "auto" else None

    def remark(self) -> str:
        """Why this drafter cannot pay with these models, in a sentence; "" where it may."""
        return ""

    def start(self, outcome: Outcome) -> None:
        """A run begins; ``outcome`` is the prefill's."""

    def propose(self, context: Sequence[int], room: DraftLimits) -> DraftTree:
        """Guesses for the tokens after ``context``, whose last token is the root."""
        return DraftTree()

    def learn(self, outcome: Outcome) -> None:
        """The verdict on the last proposal."""
        if self.budget is not None:
            self.budget.learn(outcome.tree, outcome.path, outcome.draft_seconds, outcome.verify_seconds)
        self.follow(outcome)

    def follow(self, outcome: Outcome) -> None:
        """What a round brought, whoever's proposal it was: a drafter that is part of another is told this alone, since
        the one budget of a run learns once."""
