"""What a run says about itself: frozen events, the one stream that screens, traces, metrics and tests read.

A trace is ``Started, Prefilled, Round*, Finished`` (or ``Failed`` where the run broke), then ``Audited`` where the
answer was checked. ``Loading``, ``Ready`` and ``Auditing`` come from the engine process outside a run. Datastores and
races have events of their own (``engines.datastores.datastore_events``, ``engines.race.race_events``).
``engines.wire`` writes and reads all of them as JSON.

Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from engines.core.outcome import Reason
from engines.core.tree import Trial
from engines.cost.budget import BudgetChoice
from engines.progress import Loading

SCHEMA = 2
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "no_repeat_ngram_size")
"""The fields of ``Started`` and of a request that make a distribution of logits (``engines.core.sampling``)."""

Kind = Literal["accepted", "corrected", "bonus", "target"]
"""Fate of an emitted token. accepted: drafted, and the target agrees. corrected: the target's token after a mismatch.
bonus: the target's token after a path accepted to its end. target: the target's token where nothing was drafted
(the first token, and every token of autoregressive decoding)."""

UNDISCLOSED = -1
"""Id of a drafted token that was rejected, and that the engine does not name."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do, and what its events say. Screens ask this, never which kind of client there is.

    Attributes:
        ask: it answers prompts; otherwise it only plays what was recorded.
        baseline: it decodes without drafts on request.
        branch: it goes on from any token of an answer (``Request.continued``), with other settings or another token.
        detail: rounds say on request what the target predicts at every row (``Request.detail``).
        audit: it checks an answer against the model.
        race: it measures several methods on the same prompts.
        datastores: it builds, searches and removes datastores.
        clock: its events come from a recording, whose clock can be paused and made faster or slower.
        drafts: rounds hold the tokens that were drafted.
        times: rounds say what drafting, verification and the rest took.
        asks_price: t(n) of its model can be measured, and is when somebody asks for it.
    """

    ask: bool = True
    baseline: bool = True
    branch: bool = True
    detail: bool = True
    audit: bool = True
    race: bool = True
    datastores: bool = True
    clock: bool = False
    drafts: bool = True
    times: bool = True
    asks_price: bool = False


LOCAL = Capabilities()
"""What a model that runs here can do."""

REPLAY = Capabilities(
    ask=False, baseline=False, branch=False, detail=False, audit=False, race=False, datastores=False, clock=True
)
"""What a recorded trace can do."""


@dataclass(frozen=True, slots=True)
class DatastoreInfo:
    """A datastore that fits the loaded model.

    Attributes:
        name: as in a request.
        sparse, dense: whether it can be searched by exact match, and by meaning.
        built: False for one that is built when it is first searched.
        default: searched where none is named.
    """

    name: str
    sparse: bool = False
    dense: bool = False
    built: bool = True
    default: bool = False

    @property
    def words(self) -> str:
        """What can be searched in it: "sparse and dense", "sparse, built on demand"."""
        kinds = " and ".join(kind for kind, there in (("sparse", self.sparse), ("dense", self.dense)) if there)
        return kinds if self.built else f"{kinds}, built on demand"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where drafted nodes come from.

    Attributes:
        source: who proposed them, the name of a kind of origin (``engines.methods.origins``): "prompt", "output",
            "history", "draft", "retrieval", "recycled", "server", "target", or one that a method declares.
        place: index of the first copied token in the context (PLD) or in the document (retrieval, past answers).
        document: name of the document (retrieval), or which of the past answers.
        match: length in tokens of the suffix that was matched.
        datastore, line: name of the datastore, and the line in the document's source (retrieval).
        passage: index into ``Retrieval.passages`` of the round, where the passage is among them.
    """

    source: str
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
        fused: nodes of the draft that both drafters proposed.
        dropped: of retrieval by meaning, on request (``Request.detail``): some near keys whose text went on with
            another token than the one just emitted, the nearest first; ``before`` ends with that token.
        map: of retrieval by meaning from one datastore, on request: where the keys of ``passages``, then of
            ``dropped`` lie around that of the present state, in the two directions in which they differ most from it.
    """

    seconds: float
    match: int | None = None
    hits: int = 0
    used: int = 0
    scores: tuple[float, ...] = ()
    passages: tuple[Passage, ...] = ()
    pruned: tuple[tuple[str, int], ...] = ()
    fused: int = 0
    dropped: tuple[Passage, ...] = ()
    map: tuple[tuple[float, float], ...] = ()


Rule = Literal["", "cosine", "interval", "both", "search"]
"""Why a sublayer is left out of drafting. "": it runs. cosine: it changes the residual stream too little to matter here
(ADMG, attention only). interval: it is one of every m-th (ADMG). both: either would do. search: it is of a fixed set
(Draft & Verify, whose authors search one)."""


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
class HeadReads:
    """Which hidden states of the target a learned head drafts from.

    Attributes:
        head: what it is, in words: "EAGLE-3 head".
        layers: numbers of the layers, counted from 1, after which it reads the residual stream.
        of: how many layers the target has.
        final: it reads the last hidden state, after the final norm.
    """

    head: str
    layers: tuple[int, ...]
    of: int
    final: bool

    @property
    def words(self) -> str:
        """What it reads, in words."""
        if self.final:
            return "the last hidden state"
        return "the residual stream after layers " + ", ".join(map(str, self.layers))


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft tree of a round, as shown; columns of equal length, one entry a node, parents before children.

    Attributes:
        tokens: token ids; ``UNDISCLOSED`` where the engine says only that there was one.
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

    @property
    def fused(self) -> int:
        """Nodes that two drafters proposed."""
        return sum(origin >= 0 for origin in self.also)


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
            plain softmax); None where it is not known.
        gap: difference of the two best scores that the law compared at this position (logits; at temperature > 0
            logits/temperature + noise). None under laws other than ``exact``, which compare nothing, and of a token
            that was given (the first one of a continued answer), or is the only one that the filters leave.
        noise: the Gumbel noise of the chosen token; None at temperature 0 too.
        top: the target's most probable tokens here, best first.
        trials: what a law that draws, or has a threshold, tried at this position, in order; empty at temperature 0,
            where every law keeps the likeliest token.
    """

    token: int
    text: str
    piece: str
    kind: Kind
    node: int = -1
    prob: float | None = None
    gap: float | None = None
    noise: float | None = None
    top: tuple[Choice, ...] = ()
    trials: tuple[Trial, ...] = ()


Finding = Literal["identical", "tie", "BUG", "consistent", "lossy", "differs"]
"""Verdict of an audit. identical: every token is the target's choice under law and seed. tie: where one is not, its
score is as good within rounding. BUG: rounding does not explain it. consistent (above temperature 0 laws of random
draws, which keep the distribution, not the text): every token is one the target may draw, with the probability that was
recorded. lossy: law or engine changes the target's distribution by design. differs: of what another
program decoded, rounding does not explain a token; its arithmetic is another, so that it may not be its drafts."""


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A learned draft head: its name, t(n) of it as (rows, seconds), whether it comes before the draft model where a
    method drafts with either, and its family (``engines.heads.head_config``), "" where that is not known."""

    name: str
    price: tuple[tuple[int, float], ...] = ()
    preferred: bool = False
    family: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """A model is loaded; its sizes are None where they are not known. ``draft_model`` is None where there is none that
    fits; ``no_draft_model`` says why. ``heads`` are the learned draft heads, by kind (``engines.heads.head_config``).
    ``price`` is t(n) of the target as (rows, seconds), ``draft_price`` that of the draft model
    (``engines.cost.curve.CostCurve``); ``price_busy``: the machine was not known to be quiet when it was measured.
    ``datastores`` are the available ones that fit the model; ``capabilities`` says what the engine can do. ``threads``
    is None where it is not known. ``host``: the program that computes the model, "" for this one (``MethodSpec.host``);
    where another one does, at an address, ``device`` is that. ``invariant``: each token's logits are the same to the
    last bit however it is fed, so that every lossless engine writes one text. ``tokenizer``: fingerprint of the
    vocabulary, as datastores keep it; "" where it is not known."""

    model: str
    dtype: str
    device: str
    parameters: int | None
    vocab_size: int | None
    context_limit: int | None
    chat_template: bool
    draft_model: str | None = None
    draft_parameters: int | None = None
    seconds: float = 0.0
    backend: str = "generic"
    threads: int | None = 1
    warnings: tuple[str, ...] = ()
    price: tuple[tuple[int, float], ...] = ()
    draft_price: tuple[tuple[int, float], ...] = ()
    datastores: tuple[DatastoreInfo, ...] = ()
    capabilities: Capabilities = LOCAL
    heads: dict[str, LoadedHead] = field(default_factory=dict)
    host: str = ""
    no_draft_model: str = ""
    invariant: bool = False
    tokenizer: str = ""
    price_busy: bool = False

    @property
    def served(self) -> bool:
        """Whether another program computes the model."""
        return bool(self.host)

    @property
    def strict_helps(self) -> bool:
        """Whether the option strict would let all lossless engines write one text where they don't."""
        return not self.invariant and not self.served


@dataclass(frozen=True, slots=True)
class Started:
    """A run begins: everything needed to repeat it.

    ``lossless`` is False only for laws or engines that change the target's distribution by design, and None where
    another program decodes: then nothing is known of it before an audit.
    ``prompt`` / ``prompt_pieces`` are the context's token ids and labels; ``conversation`` is the text they came from
    (role, content), the last with role "raw" where no chat template was used. ``head`` is the draft head that the
    engine may draft with, None where it needs none, and ``head_price`` its t(n); the other prices as in ``Ready``;
    ``datastores`` are those that the engine searches, and ``datastore_bytes`` what these take on the disk, None where
    it searches none or a recording does not say. ``continued``: how many tokens at the end of ``prompt`` are an answer
    that was begun before (``Request.continued``). ``round_trip``: seconds that an empty request to the server took
    there and back, the least of a few, before the run; None where the model runs here. ``arrival``: the run's times are
    those at which a server's messages arrived, so that the connection's is in them. ``computed_by``: what gives equal
    bits wherever it is the same (``CausalModel.computed_by``); "" where bits depend on how tokens are fed.
    """

    engine: str
    options: dict[str, Any]
    law: str
    temperature: float
    top_p: float
    top_k: int
    seed: int
    max_new_tokens: int
    model: str
    dtype: str
    device: str
    prompt: tuple[int, ...]
    prompt_pieces: tuple[str, ...] = ()
    conversation: tuple[tuple[str, str], ...] = ()
    draft_model: str | None = None
    lossless: bool | None = True
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA
    price: tuple[tuple[int, float], ...] = ()
    draft_price: tuple[tuple[int, float], ...] = ()
    datastores: tuple[str, ...] = ()
    continued: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    head: str | None = None
    head_price: tuple[tuple[int, float], ...] = ()
    datastore_bytes: int | None = None
    round_trip: float | None = None
    arrival: bool = False
    computed_by: str = ""

    @property
    def lossy(self) -> bool:
        """Whether the text is known to follow another distribution than the target's."""
        return self.lossless is False


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache and gave the first token.

    Attributes:
        prompt_tokens: None where the server that read them does not say how many they are.
        reused: prompt tokens whose KV rows were already there (shared prefix of an earlier turn); None where it is not
            known.
        seconds: time of the prefill, the first token and the drafter's own start included.
        first: the first token of the answer.
        cache_length: KV rows now in the cache; None where it is not known.
        layers: of self-speculation: which sublayers the drafts of this answer leave out, and why.
        reads: of a learned head that drafts: what it is, and what it reads.
    """

    prompt_tokens: int | None
    reused: int | None
    seconds: float
    first: Emitted
    cache_length: int | None
    layers: Layers | None = None
    reads: HeadReads | None = None


Known = Literal["all", "accepted", "text"]
"""What is known of a round. all: how much was drafted and accepted. accepted: of the draft only what was accepted, and
not how much more there was. text: only what was written, which may be less than a verification step gave, or more."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: draft, one target forward, verdict.

    Attributes:
        index: 1, 2, ... ; also the number of target forwards so far.
        position: index in the whole context of the first token emitted here.
        draft: what was drafted (sent to verification).
        path: nodes accepted, root to leaf (after the cut at the end token or the length limit).
        emitted: the tokens added, in order; one for each visited row.
        draft_seconds, verify_seconds, other_seconds: drafting; the forward; everything else of the loop. Where an
            engine says only what a round took in all, that is ``verify_seconds``, and the others are None.
        cache_length: KV rows after the round; None where it is not known.
        note: the method's remarks as JSON data (``engines.methods.note_of`` reads them).
        budget: what the budget chose of the draft; None where there is no budget.
        threads: where the round ran on fewer than ``Ready.threads``, since something else was using the cores.
        bias: of a lossy law: total variation distance, 0..1, between what the law makes of this round's first token,
            given this draft, and the target's distribution. None for lossless laws.
        retrieval: the lookup behind the draft; None for engines that don't retrieve.
        verified: what the target says at each row, the root's first, then the nodes'; empty unless asked for
            (``Request.detail``): what the walk visited is in ``emitted``.
        known: how much a server discloses of it.
    """

    index: int
    position: int
    draft: Draft
    path: tuple[int, ...]
    emitted: tuple[Emitted, ...]
    draft_seconds: float | None
    verify_seconds: float | None
    other_seconds: float | None
    cache_length: int | None
    note: dict[str, Any] = field(default_factory=dict)
    bias: float | None = None
    retrieval: Retrieval | None = None
    verified: tuple[Verified, ...] = ()
    known: Known = "all"
    budget: BudgetChoice | None = None
    threads: int | None = None

    @property
    def drafted(self) -> int | None:
        """How many tokens the draft had; None where that is not disclosed with the round."""
        return len(self.draft.tokens) if self.known == "all" else None

    @property
    def accepted(self) -> int | None:
        """How many of them were accepted; None where that is not disclosed."""
        return None if self.known == "text" else len(self.path)

    @property
    def draft_forwards(self) -> int | None:
        """Forwards of whatever drafted, where the method's note says a number that can be."""
        noted = self.note.get("draft_forwards")
        return noted if type(noted) is int and 0 < noted < 1_000_000 else None


@dataclass(frozen=True, slots=True)
class ServerTotals:
    """What a server says of an answer when it is over; None, or empty, where it does not.

    Attributes:
        tokens: of the answer.
        drafted, accepted: tokens of its drafts; those kept.
        depth_tried, depth_accepted: by depth (index 0 = first drafted position): drafts of which a token was judged
            there; those that it was accepted of.
        drafts: rounds that had one.
        steps: rounds, where the messages are none.
        drafted_by_round: for each round the tokens of its draft; empty where it is not known which round had one.
        prompt_tokens: of the prompt.
        joined: some messages are of several steps, so that what the rounds say of accepted tokens is not true.
    """

    tokens: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    depth_tried: tuple[int, ...] = ()
    depth_accepted: tuple[int, ...] = ()
    drafts: int | None = None
    steps: int | None = None
    drafted_by_round: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A run ended: at the end token (stop), at a limit (length), or by the user (cancelled). ``text`` is the answer,
    ``tokens`` its ids with the end token, ``UNDISCLOSED`` where they are not known. ``totals`` is what a server said of
    the answer at its end, None where there is nothing that the rounds do not say. ``ended_by``: why, in a server's own
    word, where it stopped for another reason than the model's end (a filter, a tool)."""

    reason: Reason
    tokens: tuple[int, ...]
    text: str
    totals: ServerTotals | None = None
    ended_by: str = ""


@dataclass(frozen=True, slots=True)
class Prefilling:
    """Progress of a prompt that is read in several pieces: ``done`` of ``total`` tokens, and the seconds left at the
    rate so far, None before there is one. It comes between ``Started`` and ``Prefilled``, and is not kept in a run. Of
    a race's warm-ups, of which no other event comes, one with all tokens done says that the prompt was read.
    ``draft``: the draft model reads it, after the target did."""

    done: int
    total: int
    seconds_left: float | None = None
    draft: bool = False


@dataclass(frozen=True, slots=True)
class Pricing:
    """Progress of a measurement of t(n) that was asked for, 0..1."""

    done: float


@dataclass(frozen=True, slots=True)
class PriceMeasured:
    """t(n) of a server's model as (rows, seconds), measured when asked for, after a cached prompt of ``context``
    tokens. By the server's clock: what it takes to read n tokens, the scores of the last one alone."""

    price: tuple[tuple[int, float], ...]
    context: int


@dataclass(frozen=True, slots=True)
class Auditing:
    """Progress of an audit, 0..1. Of several answers: ``done`` is of them all, ``number`` (from 1) of ``total`` begins.
    """

    done: float
    number: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True)
class Audited:
    """An answer was re-derived by the plain model and compared (``engines.audit.check``). Positions count from 0, the
    first token of the answer. Scores are logits, above temperature 0 logits/temperature + noise.

    Attributes:
        at: position of the first token that rounding does not explain, else of the first tie; None without either. Of
            ``lossy`` that of the first of the ``differences``.
        gap: ``gaps[at]``.
        tolerance: the largest gap that rounding explains, from the precision and, unless inputs have 8 bits, ``noise``.
        noise: the largest change of a difference of two scores, measured on this text between forwards of other shapes.
        checked: positions looked at, all of the answer.
        ties: of the ``differences`` those whose gaps are within the tolerance.
        differences: tokens that are not the target's choice (above temperature 0: that it cannot draw), ties included.
        choices: the target's choice at each position, given the answer before it (above temperature 0: its likeliest
            token), with its probability.
        gaps: how far scores must move for the answer's token to be the one, 0 where it is: the choice's score minus the
            token's, less where a filter's edge is nearer.
        leads: the target's two best scores apart; None where draws decided, or filters leave one token.
        seconds: what the audit took.
        draws: whether random draws decided; None in audits of earlier versions.
        exact: whether the forward that wrote the answer, each token read without drafts, chooses all of its tokens, to
            the last bit; None where it computes otherwise now, where its bits depend on how tokens are fed, and under
            laws that are lossy by design.
    """

    verdict: Finding
    at: int | None
    gap: float | None
    tolerance: float
    noise: float
    checked: int
    ties: int
    differences: int
    choices: tuple[Choice, ...] = ()
    gaps: tuple[float, ...] = ()
    leads: tuple[float | None, ...] = ()
    seconds: float = 0.0
    exact: bool | None = None
    draws: bool | None = None

    @property
    def drawn(self) -> bool:
        """Whether random draws decided: then there is no choice to compare, only what the target can draw."""
        return all(lead is None for lead in self.leads) if self.draws is None else self.draws

    @property
    def words(self) -> str:
        """The verdict in short, the first token counted as 1: ``identical``, ``tie at 41 (gap 0.0012)``, ``BUG at
        41``."""
        if self.verdict not in ("tie", "differs", "BUG"):
            return self.verdict
        close = "" if self.verdict == "BUG" else f" (gap {self.gap:.2g})"
        return f"{self.verdict} at {self.at + 1}{close}"


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong: a sentence, a way out, and the kind of ``errors.SpecError`` (usage, model, datastore,
    failed)."""

    message: str
    hint: str = ""
    kind: str = "failed"


Preparing = Union[Loading, Prefilling]
"""Progress before a run's first token: what it needs is started or built, or its prompt is read."""
RunEvent = Union[Loading, Ready, Started, Prefilling, Prefilled, Round, Finished, Pricing, PriceMeasured, Auditing,
                 Audited, Failed]
"""What an engine says of its models and its runs. Datastores and races have events of their own (``engines.wire``)."""
