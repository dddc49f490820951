"""What a run says about itself: frozen events, the one stream that screens, traces, metrics and tests read.

A trace is ``Started, Prefilled, Round*, Finished`` (or ``Failed`` where the run broke). ``Loading`` and ``Ready``
come from the engine process outside a run. Every event is JSON both ways: ``to_json`` / ``from_json``.

Importing this module imports neither torch nor transformers.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, Union

SCHEMA = 1

Kind = Literal["accepted", "corrected", "bonus", "target"]
"""Fate of an emitted token. accepted: drafted, and the target agrees. corrected: the target's token after a mismatch.
bonus: the target's token after a path accepted to its end. target: the target's token where nothing was drafted
(the first token, and every token of autoregressive decoding)."""

Source = Literal["prompt", "output", "draft", "retrieval", "target"]
"""Who proposed a token: copied from the prompt, copied from the text generated so far, a draft model, a datastore,
or the target itself."""

Reason = Literal["stop", "length", "cancelled"]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where drafted nodes come from.

    Attributes:
        source: see ``Source``.
        place: index of the first copied token in the context (PLD) or in the document (retrieval).
        document: name of the document (retrieval).
        match: length in tokens of the suffix that was matched.
    """

    source: Source
    place: int | None = None
    document: str | None = None
    match: int | None = None


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
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    pieces: tuple[str, ...] = ()
    probs: tuple[float | None, ...] = ()
    origin: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """A token the target might have chosen: id, its text alone, its probability under the law's distribution."""

    token: int
    piece: str
    prob: float


@dataclass(frozen=True, slots=True)
class Trial:
    """One throw of the rejection law: node tried, target and draft probability of its token, the dice, the verdict.

    Accepted when ``dice < target_prob / draft_prob``; ``target_prob`` is of the residual distribution after earlier
    siblings were rejected.
    """

    node: int
    target_prob: float
    draft_prob: float
    dice: float
    accepted: bool


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
            logits/temperature + noise). None under the rejection law, which compares nothing.
        noise: the Gumbel noise of the chosen token, None at temperature 0 and under rejection.
        top: the target's most probable tokens here, best first.
        trials: the dice of the rejection law, in order.
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


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of loading: a stage in words, and how much of it is done (0..1, None where unknown)."""

    stage: str
    done: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A model is loaded. ``draft_model`` is None where there is none that fits; ``warnings`` says why. ``price`` is
    t(n) of the target as (rows, seconds), ``draft_price`` that of the draft model (``engines.cost.CostCurve``)."""

    model: str
    dtype: str
    device: str
    parameters: int
    vocab_size: int
    context_limit: int
    chat_template: bool
    draft_model: str | None = None
    draft_parameters: int | None = None
    seconds: float = 0.0
    backend: str = "generic"
    threads: int = 1
    warnings: tuple[str, ...] = ()
    price: tuple[tuple[int, float], ...] = ()
    draft_price: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """A run begins: everything needed to repeat it.

    ``lossless`` is False only for laws or engines that change the target's distribution by design.
    ``prompt`` / ``prompt_pieces`` are the context's token ids and labels; ``conversation`` is the text they came from
    (role, content), with role "raw" for a prompt without chat template. ``price`` and ``draft_price`` as in ``Ready``.
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


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is in the cache and gave the first token.

    Attributes:
        reused: prompt tokens whose KV rows were already there (shared prefix of an earlier turn).
        seconds: time of the prefill, the first token and the drafter's own start included.
        first: the first token of the answer.
        cache_length: KV rows now in the cache.
    """

    prompt_tokens: int
    reused: int
    seconds: float
    first: Emitted
    cache_length: int


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
        note: the drafter's remarks for display (match length, hits, forwards, ...), JSON scalars.
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


@dataclass(frozen=True, slots=True)
class Finished:
    """A run ended: at the end token (stop), at a limit (length), or by the user (cancelled). ``text`` is the answer,
    ``tokens`` its ids with the end token."""

    reason: Reason
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something went wrong: a sentence, a way out, and the kind of ``errors.SpecError`` (usage, model, failed)."""

    message: str
    hint: str = ""
    kind: str = "failed"


Event = Union[Loading, Ready, Started, Prefilled, Round, Finished, Failed]
_CLASSES: dict[str, type] = {c.__name__: c for c in typing.get_args(Event)}


def to_json(event: Event) -> str:
    """One line of JSON; ``"event"`` names the class. Non-finite numbers become null, and come back as nan."""
    record = {"event": type(event).__name__, **_plain(event)}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def from_json(line: str) -> Event:
    """The event of one line.

    Raises:
        ValueError: not JSON, an unknown event, or a field missing or of the wrong shape. Unknown fields are ignored,
            so traces of a newer minor version stay readable.
    """
    record = json.loads(line)
    name = record.get("event") if isinstance(record, dict) else None
    if not isinstance(name, str) or name not in _CLASSES:
        raise ValueError("not an event")
    return _build(_CLASSES[name], record)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _build(cls: type, record: Any) -> Any:
    if not isinstance(record, dict):
        raise ValueError(f"{cls.__name__}: expected an object")
    hints = _hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    try:
        return cls(**{name: _typed(hints[name], v) for name, v in record.items() if name in known})
    except TypeError as error:
        raise ValueError(f"{cls.__name__}: {error}") from None


def _typed(hint: Any, value: Any) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _typed(next(a for a in args if a is not type(None)), value)
    if origin is tuple:
        if not isinstance(value, list):
            raise ValueError("expected a list")
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(_typed(args[0], v) for v in value)
        if len(args) != len(value):
            raise ValueError("list of the wrong length")
        return tuple(_typed(a, v) for a, v in zip(args, value))
    if dataclasses.is_dataclass(hint):
        return _build(hint, value)
    return _scalar(hint, origin, args, value)


def _scalar(hint: Any, origin: Any, args: tuple, value: Any) -> Any:
    if origin is Literal:
        if value not in args:
            raise ValueError(f"{value!r} is none of {args}")
        return value
    if hint is float and (value is None or type(value) in (int, float)):
        return float("nan") if value is None else float(value)
    expected = {int: int, str: str, bool: bool}.get(hint, dict if origin is dict else object)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise ValueError(f"expected {getattr(expected, '__name__', expected)}, got {type(value).__name__}")
    return value


_HINTS: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]
