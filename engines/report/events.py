"""What a run says about itself: frozen events, the one stream that screens, traces, metrics and tests read.

A trace is ``Started, Prefilled, Round*, Finished`` (or ``Failed`` where the run broke), then ``Audited`` where the
answer was checked. ``Loading``, ``Ready`` and ``Auditing`` come from the engine process outside a run. Datastores and
races have events of their own (``engines.datastores.events``, ``engines.race.events``). ``engines.wire`` writes and
reads all of them as JSON.

Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Union

from engines.core.outcome import Reason
from engines.cost.budget import BudgetChoice
from engines.progress import Loading
from engines.report.event_types import (
    LOCAL,
    Capabilities,
    Choice,
    DatastoreInfo,
    Draft,
    Emitted,
    Kind,
    Layers,
    Origin,
    Passage,
    Retrieval,
    Rule,
    Source,
    Trial,
    Verified,
)

SCHEMA = 2

__all__ = [
    "SCHEMA", "Audited", "Auditing", "Capabilities", "Choice", "DatastoreInfo", "Draft", "Emitted", "Failed", "Finding",
    "Finished", "Kind", "Layers", "Loading", "Origin", "Passage", "Prefilled", "Ready", "Reason", "Retrieval", "Round",
    "Rule", "RunEvent", "Source", "Started", "Trial", "Verified",
]

Finding = Literal["identical", "tie", "BUG", "consistent", "lossy"]
"""Verdict of an audit. identical: every token is the target's choice under law and seed. tie: where one is not, its
score is as good within rounding. BUG: rounding does not explain it. consistent (rejection above temperature 0, which
keeps the distribution, not the text): every token is one the target may draw, with the probability that was recorded.
lossy: law or engine changes the target's distribution by design."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A model is loaded; its sizes are None where they are not known. ``draft_model`` is None where there is none that
    fits; ``warnings`` says why. ``price`` is t(n) of the target as (rows, seconds), ``draft_price`` that of the draft
    model (``engines.cost.curve.CostCurve``).
    ``datastores`` are those at hand that fit the model; ``capabilities`` says what the engine can do."""

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
    threads: int = 1
    warnings: tuple[str, ...] = ()
    price: tuple[tuple[int, float], ...] = ()
    draft_price: tuple[tuple[int, float], ...] = ()
    datastores: tuple[DatastoreInfo, ...] = ()
    capabilities: Capabilities = LOCAL


@dataclass(frozen=True, slots=True)
class Started:
    """A run begins: everything needed to repeat it.

    ``lossless`` is False only for laws or engines that change the target's distribution by design.
    ``prompt`` / ``prompt_pieces`` are the context's token ids and labels; ``conversation`` is the text they came from
    (role, content), with role "raw" for a prompt without chat template. ``price`` and ``draft_price`` as in ``Ready``;
    ``datastores`` are those that the engine searches. ``continued``: how many tokens at the end of ``prompt`` are an
    answer that was begun before (``Request.continued``).
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
    lossless: bool = True
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA
    price: tuple[tuple[int, float], ...] = ()
    draft_price: tuple[tuple[int, float], ...] = ()
    datastores: tuple[str, ...] = ()
    continued: int = 0


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache and gave the first token.

    Attributes:
        reused: prompt tokens whose KV rows were already there (shared prefix of an earlier turn).
        seconds: time of the prefill, the first token and the drafter's own start included.
        first: the first token of the answer.
        cache_length: KV rows now in the cache.
        layers: of self-speculation: which sublayers the drafts of this answer leave out, and why.
    """

    prompt_tokens: int
    reused: int
    seconds: float
    first: Emitted
    cache_length: int
    layers: Layers | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One round: draft, one target forward, verdict.

    Attributes:
        index: 1, 2, ... ; also the number of target forwards so far.
        position: index in the whole context of the first token emitted here.
        draft: what was drafted (sent to verification).
        path: nodes accepted, root to leaf (after the cut at the end token or the length limit).
        emitted: the tokens added, in order; one for each visited row.
        draft_seconds, verify_seconds, other_seconds: drafting; the forward; everything else of the loop.
        cache_length: KV rows after the round.
        note: the method's remarks as JSON data (``engines.methods.note_of`` reads them).
        budget: what the budget chose of the draft; None where there is no budget.
        threads: where the round ran on fewer than ``Ready.threads``, since something else was using the cores.
        bias: of a lossy law: total variation distance, 0..1, between what the law makes of this round's first token,
            given this draft, and the target's distribution. None for lossless laws.
        retrieval: the lookup behind the draft; None for engines that don't retrieve.
        verified: what the target says at each row, the root's first, then the nodes'; empty unless asked for
            (``Request.detail``): what the walk visited is in ``emitted``.
    """

    index: int
    position: int
    draft: Draft
    path: tuple[int, ...]
    emitted: tuple[Emitted, ...]
    draft_seconds: float
    verify_seconds: float
    other_seconds: float
    cache_length: int
    note: dict[str, Any] = field(default_factory=dict)
    bias: float | None = None
    retrieval: Retrieval | None = None
    verified: tuple[Verified, ...] = ()
    budget: BudgetChoice | None = None
    threads: int | None = None

    @property
    def draft_forwards(self) -> int | None:
        """Forwards of whatever drafted, where the method's note says a number that can be."""
        noted = self.note.get("draft_forwards")
        return noted if type(noted) is int and 0 < noted < 1_000_000 else None


@dataclass(frozen=True, slots=True)
class Finished:
    """A run ended: at the end token (stop), at a limit (length), or by the user (cancelled). ``text`` is the answer,
    ``tokens`` its ids with the end token."""

    reason: Reason
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Auditing:
    """Progress of an audit, 0..1."""

    done: float


@dataclass(frozen=True, slots=True)
class Audited:
    """An answer was re-derived by the plain model and compared (``engines.audit.check``). Positions count from 0, the
    first token of the answer. Scores are logits, above temperature 0 logits/temperature + noise.

    Attributes:
        at: position of the first BUG, else of the first tie; None without either.
        gap: ``gaps[at]``.
        tolerance: the largest gap that rounding explains, from ``noise`` and the dtype's precision.
        noise: the largest change of a difference of two scores, measured on this text between forwards of other shapes.
        checked: positions looked at, all of the answer.
        ties: gaps above 0 and within the tolerance.
        differences: tokens that are not the target's choice (where dice decide: that it cannot draw), ties included.
        choices: the target's choice at each position, given the answer before it (where dice decide: its likeliest
            token), with its probability.
        gaps: how far scores must move for the answer's token to be the one, 0 where it is: the choice's score minus the
            token's, less where a filter's edge is nearer.
        leads: the target's two best scores apart; None where nothing is compared.
        seconds: what the audit took.
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

    @property
    def words(self) -> str:
        """The verdict in short: ``identical``, ``tie at 41 (gap 0.0012)``, ``BUG at 41``."""
        if self.verdict == "tie":
            return f"tie at {self.at} (gap {self.gap:.2g})"
        return f"BUG at {self.at}" if self.verdict == "BUG" else self.verdict


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong: a sentence, a way out, and the kind of ``errors.SpecError`` (usage, model, datastore,
    failed)."""

    message: str
    hint: str = ""
    kind: str = "failed"


RunEvent = Union[Loading, Ready, Started, Prefilled, Round, Finished, Auditing, Audited, Failed]
"""What an engine says of its models and its runs. Datastores and races have events of their own (``engines.wire``)."""
