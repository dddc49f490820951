"""What events are made of: origins of drafted tokens, the draft tree as shown, emitted tokens and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.core.tree import Trial

Kind = Literal["accepted", "corrected", "bonus", "target"]
"""Fate of an emitted token. accepted: drafted, and the target agrees. corrected: the target's token after a mismatch.
bonus: the target's token after a path accepted to its end. target: the target's token where nothing was drafted
(the first token, and every token of autoregressive decoding)."""

Source = Literal["prompt", "output", "draft", "retrieval", "target"]
"""Who proposed a token: copied from the prompt, copied from the text generated so far, a draft model, a datastore,
or the target itself."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and what its events say. Screens ask this, never which kind of client there is.

    Attributes:
        ask: it answers prompts; otherwise it only plays what was recorded.
        branch: it goes on from any token of an answer (``Request.continued``), with other settings or another token.
        detail: rounds say on request what the target predicts at every row (``Request.detail``).
        audit: it checks an answer against the model.
        race: it measures several methods on the same prompts.
        datastores: it builds, searches and removes datastores.
        clock: its events come from a recording, whose clock can be paused and made faster or slower.
        drafts: rounds hold the tokens that were drafted.
        probabilities: emitted tokens have their probability.
        times: rounds say what drafting, verification and the rest took.
    """

    ask: bool = True
    branch: bool = True
    detail: bool = True
    audit: bool = True
    race: bool = True
    datastores: bool = True
    clock: bool = False
    drafts: bool = True
    probabilities: bool = True
    times: bool = True


LOCAL = Capabilities()
"""What a model that runs here can do."""

REPLAY = Capabilities(
    ask=False, branch=False, detail=False, audit=False, race=False, datastores=False, clock=True
)
"""What a recorded trace can do."""


@dataclass(frozen=True, slots=True)
class DatastoreInfo:
    """A datastore that fits the loaded model.

    Attributes:
        name: as in a request.
        sparse, dense: whether it can be searched by exact match, and by meaning.
        built: False for one that is built when it is first used.
    """

    name: str
    sparse: bool = False
    dense: bool = False
    built: bool = True

    @property
    def words(self) -> str:
        """What can be searched in it: "sparse and dense", "sparse, built when used"."""
        kinds = " and ".join(kind for kind, there in (("sparse", self.sparse), ("dense", self.dense)) if there)
        return kinds if self.built else f"{kinds}, built when used"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where drafted nodes come from.

    Attributes:
        source: see ``Source``.
        place: index of the first copied token in the context (PLD) or in the document (retrieval).
        document: name of the document (retrieval).
        match: length in tokens of the suffix that was matched.
        datastore, line: name of the datastore, and the line in the document's source (retrieval).
        passage: index into ``Retrieval.passages`` of the round, where the passage is among them.
    """

    source: Source
    place: int | None = None
    document: str | None = None
    match: int | None = None
    datastore: str | None = None
    line: int | None = None
    passage: int | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A place in a datastore that a draft came from.

    Attributes:
        datastore, document, line: where it is; line is None where the source has no lines.
        before, after: its text, before and after the point that matched the end of the context.
        weight: of retrieval by exact match: how many of the continuations begin like the first drafted tokens of this
            one, or where candidates are weighed, as RASD does, how much this one is to be expected, below 1; of
            retrieval by meaning: the similarity of the keys.
    """

    datastore: str
    document: str
    line: int | None
    before: str
    after: str
    weight: float


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What a round's lookup in datastores brought.

    Attributes:
        seconds: of the lookup, the tree not built yet.
        match: tokens of the longest suffix that was found; None for retrieval by meaning, 0 where nothing was found.
        hits: occurrences of the suffix, or neighbours that passed the filter; ``used`` of them made the draft.
        scores: of retrieval by meaning, similarities of the nearest neighbours, the best first.
        passages: some of the places, the most important first.
        pruned: of a fused draft, first tokens of retrieved branches that were cut off, and how many nodes hung there.
        fused: nodes that both drafters proposed.
    """

    seconds: float
    match: int | None = None
    hits: int = 0
    used: int = 0
    scores: tuple[float, ...] = ()
    passages: tuple[Passage, ...] = ()
    pruned: tuple[tuple[str, int], ...] = ()
    fused: int = 0


Rule = Literal["", "cosine", "interval", "both", "search"]
"""Why a sublayer is left out of drafting. "": it runs. cosine: it changes the residual stream too little to matter here
(ADMG, attention only). interval: it is one of every m-th (ADMG). both: either would do. search: a search found that
drafting is faster without it (Draft & Verify)."""


@dataclass(frozen=True, slots=True)
class Layers:
    """Which sublayers of the target self-speculation leaves out when it drafts, and why. Columns of equal length, one
    entry a layer, the first layer first.

    Attributes:
        attention, mlp: the rule that leaves the sublayer out.
        attention_cosine, mlp_cosine: C_l, the cosine of the residual stream before and after the sublayer, averaged
            over ``positions`` of the context; None where it was not measured.
        positions: positions of the context that the cosines are averaged over.
        alpha, m, n: the threshold, the interval and the number of last layers that stay (ADMG, Algorithm 1); None
            where that rule is off or the layers come from a search.
        attention_stays, mlp_stays: layers, counted from 1, whose sublayer the model cannot do without, whatever a rule
            says.
    """

    attention: tuple[Rule, ...]
    mlp: tuple[Rule, ...]
    attention_cosine: tuple[float | None, ...] = ()
    mlp_cosine: tuple[float | None, ...] = ()
    positions: int = 0
    alpha: float | None = None
    m: int | None = None
    n: int | None = None
    attention_stays: tuple[int, ...] = ()
    mlp_stays: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft tree of a round, as shown; columns of equal length, one entry a node, parents before children.

    Attributes:
        tokens: token ids.
        parents: index of the parent node, -1 for a child of the root (the last emitted token).
        pieces: each token's text alone, for labels (special and partial tokens are named, e.g. ``<0xE4>``).
        probs: the drafter's probability of the token given its parent, or None where the drafter has none.
        origin: index into ``origins`` for each node.
        origins: the distinct origins.
        also: of a fused tree, for each node the index of its second origin, -1 where only one drafter proposed it;
            empty for all others.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    probs: tuple[float | None, ...] = ()
    origin: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    also: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A token the target might have chosen: id, its text alone, its probability under the law's distribution."""

    token: int
    piece: str
    prob: float


@dataclass(frozen=True, slots=True)
class Verified:
    """What the target says at one verified row.

    Attributes:
        choice: the token that it has there: at temperature 0 the likeliest, under ``exact`` the one of largest score
            with its noise; under laws that draw, which fix none, the likeliest.
        noise: the Gumbel noise of the choice; None where there is none.
        drafted: its probability of the node's own token, given the node's parent; None for the root.
    """

    choice: Choice
    noise: float | None = None
    drafted: float | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """One token of the answer and why it was chosen.

    Attributes:
        token: token id.
        text: what this token adds to the answer's text ("" for special tokens and unfinished characters). The
            concatenation over a run is exactly ``Finished.text``.
        piece: the token's own label.
        kind: its fate.
        node: index in ``Round.draft`` of the node that carried it, -1 if the target wrote it.
        prob: target's probability of the token (under the law's temperature and filters; at temperature 0 the
            plain softmax).
        gap: difference of the two best scores that the law compared at this position (logits; at temperature > 0
            logits/temperature + noise). None under laws other than ``exact``: they compare nothing.
        noise: the Gumbel noise of the chosen token, None at temperature 0 and under other laws.
        top: the target's most probable tokens here, best first.
        trials: what a law that draws, or has a threshold, tried at this position, in order.
    """

    token: int
    text: str
    piece: str
    kind: Kind
    node: int = -1
    prob: float = 1.0
    gap: float | None = None
    noise: float | None = None
    top: tuple[Choice, ...] = ()
    trials: tuple[Trial, ...] = ()
