"""What a screen shows of a run: a pure fold over its events, nothing else.

``fold(state, event)`` returns a new state and leaves the old one as it was, so that any earlier moment of a run can be
kept, compared and shown again. Long columns are ``Log``s, which share their storage: a step costs what the event
brings, not what came before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from typing import Generic, TypeVar

from engines.core.tree import children
from engines.report.answer import Answer, lack
from engines.report.events import (
    UNDISCLOSED,
    Audited,
    Draft,
    Emitted,
    Failed,
    Finished,
    Origin,
    Prefilled,
    Round,
    RunEvent,
    Started,
)
from engines.report.metrics import Metrics, measure

T = TypeVar("T")
MISSING = " […]"
"""Stands in a text for what is missing there."""


class Log(Sequence, Generic[T]):
    """An append-only column that can be extended without changing the ones it came from."""

    __slots__ = ("_items", "_length")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._length = len(self._items)

    def extended(self, items: Iterable[T]) -> Log[T]:
        """This column with more at its end; the storage is shared where this is the longest one."""
        new: Log[T] = Log.__new__(Log)
        shared = self._items if len(self._items) == self._length else self._items[: self._length]
        shared.extend(items)
        new._items, new._length = shared, len(shared)
        return new

    def first(self, length: int) -> Log[T]:
        """The first so many entries, as a column of its own that shares the storage."""
        new: Log[T] = Log.__new__(Log)
        new._items, new._length = self._items, max(0, min(length, self._length))
        return new

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._items[slice(*index.indices(self._length))]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._items[index]

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and self[:] == other[:]

    def __repr__(self) -> str:
        return f"Log({self[:]!r})"


@dataclass(frozen=True, slots=True)
class TokenState:
    """One token of the answer, as shown.

    Attributes:
        text: as in ``Emitted``; where tokens before it are missing from the trace, ``MISSING`` comes first.
        piece, kind, prob: as in ``Emitted``.
        source: who proposed it (``Origin.source``, or "target").
        round: index into ``RunState.rounds``, -1 for the token of the prefill.
        emitted: the event's own record, for the inspector.
    """

    text: str
    piece: str
    kind: str
    source: str
    prob: float | None
    round: int
    emitted: Emitted


@dataclass(frozen=True, slots=True)
class RunState:
    """A run so far.

    Attributes:
        rounds: the rounds; ``starts[i]`` is the index in ``tokens`` of the first token of ``rounds[i]``.
        clock: decoding seconds after each round, by the engine's clock (drawing is not in it).
        history: the metrics after each round.
        audited: what the answer's audit found, None before one.
    """

    started: Started | None = None
    prefilled: Prefilled | None = None
    rounds: Log[Round] = field(default_factory=Log)
    starts: Log[int] = field(default_factory=Log)
    tokens: Log[TokenState] = field(default_factory=Log)
    clock: Log[float] = field(default_factory=Log)
    metrics: Metrics = field(default_factory=Metrics)
    history: Log[Metrics] = field(default_factory=Log)
    finished: Finished | None = None
    failed: Failed | None = None
    audited: Audited | None = None

    @property
    def running(self) -> bool:
        """Started, and neither finished nor failed."""
        return self.started is not None and self.finished is None and self.failed is None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(token.text for token in self.tokens)

    @property
    def cache_length(self) -> int | None:
        """KV rows in the cache; None where it is not known."""
        if self.rounds:
            return self.rounds[-1].cache_length
        return self.prefilled.cache_length if self.prefilled else 0

    @property
    def baseline_key(self) -> tuple | None:
        """What an autoregressive run must share with this one for a speed-up: model, machine, prompt and settings; of
        random draws the seed too."""
        s = self.started
        names = ("model", "dtype", "device", "law", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
                 "no_repeat_ngram_size", "max_new_tokens", "prompt")
        return s and (*(getattr(s, name) for name in names), s.temperature and s.seed)

    @property
    def answer(self) -> Answer | None:
        """What an audit takes; None before the first token."""
        if self.started is None or not self.tokens:
            return None
        return Answer.of(self.started, (token.emitted for token in self.tokens))

    def until(self, rounds: int) -> RunState:
        """The state after the first so many rounds: what a fold from the start would give, without folding."""
        rounds = max(0, min(rounds, len(self.rounds)))
        before = measure(event for event in (self.started, self.prefilled) if event is not None)
        tokens = self.starts[rounds] if rounds < len(self.starts) else len(self.tokens)
        return RunState(
            started=self.started, prefilled=self.prefilled, rounds=self.rounds.first(rounds),
            starts=self.starts.first(rounds), tokens=self.tokens.first(tokens), clock=self.clock.first(rounds),
            metrics=self.history[rounds - 1] if rounds else before, history=self.history.first(rounds),
        )

    @property
    def events(self) -> list[RunEvent]:
        """The events that this was folded from."""
        found = (self.started, self.prefilled, *self.rounds, self.failed, self.finished, self.audited)
        return [event for event in found if event is not None]

    def totals(self) -> RunState:
        """The same run without its rounds and tokens: what numbers need."""
        return RunState(self.started, self.prefilled, metrics=self.metrics, finished=self.finished, failed=self.failed,
                        audited=self.audited)

    def tokens_of(self, index: int) -> list[TokenState]:
        """The tokens of one round."""
        stop = self.starts[index + 1] if index + 1 < len(self.starts) else len(self.tokens)
        return self.tokens[self.starts[index] : stop]

    def drafted_in(self, index: int) -> int | None:
        """How many tokens the draft of a round had, by what a server said at the end, too; None where that is not
        known."""
        event = self.rounds[index]
        totals = self.finished.totals if self.finished is not None else None
        told = totals.drafted_by_round if totals is not None and event.known == "accepted" else ()
        return told[event.index - 1] if 0 < event.index <= len(told) else event.drafted

    @property
    def lacks_rounds(self) -> bool:
        """Whether some of it is missing, as in a damaged trace."""
        return lack(self.prefilled, self.rounds, len(self.tokens), self.finished)

    def missing_before(self, index: int) -> bool:
        """Whether what came right before a round is missing: the round before it or, of the first, the prefill."""
        before = self.rounds[index - 1].index if index else 0 if self.prefilled is not None else -1
        return self.rounds[index].index != before + 1

    def root_of(self, index: int) -> TokenState | None:
        """The token a round's tree grows from: the last one emitted before it; None where that is missing."""
        start = self.starts[index]
        return self.tokens[start - 1] if start and not self.missing_before(index) else None


def fold(state: RunState, event: RunEvent) -> RunState:
    """The state after one more event. ``Started`` begins anew; events outside of a run change nothing."""
    if isinstance(event, Started):
        return RunState(started=event, metrics=Metrics().add(event))
    if isinstance(event, Prefilled):
        return replace(
            state, prefilled=event, tokens=state.tokens.extended([_token(event.first, Draft(), -1)]),
            metrics=state.metrics.add(event),
        )
    if isinstance(event, Round):
        return _fold_round(state, event)
    if isinstance(event, Finished):
        return replace(state, finished=event, metrics=state.metrics.add(event))
    if isinstance(event, Failed):
        return replace(state, failed=event)
    if isinstance(event, Audited):
        return replace(state, audited=event)
    return state


def fold_all(events: Iterable[RunEvent], state: RunState | None = None) -> RunState:
    """The state after all of these."""
    state = state or RunState()
    for event in events:
        state = fold(state, event)
    return state


def _fold_round(state: RunState, event: Round) -> RunState:
    index = len(state.rounds)
    metrics = state.metrics.add(event)
    made = replace(
        state,
        rounds=state.rounds.extended([event]),
        starts=state.starts.extended([len(state.tokens)]),
        clock=state.clock.extended([metrics.decode_seconds]),
        metrics=metrics,
        history=state.history.extended([metrics]),
    )
    tokens = [_token(e, event.draft, index) for e in event.emitted]
    if tokens and made.missing_before(index):
        tokens[0] = replace(tokens[0], text=MISSING + tokens[0].text)
    return replace(made, tokens=state.tokens.extended(tokens))


def _token(e: Emitted, draft: Draft, round_index: int) -> TokenState:
    return TokenState(
        text=e.text, piece=e.piece, kind=e.kind, source=origin_of(draft, e.node).source, prob=e.prob,
        round=round_index, emitted=e,
    )


def origin_of(draft: Draft, node: int) -> Origin:
    """Who proposed a node; the target for -1."""
    return draft.origins[draft.origin[node]] if node >= 0 else Origin("target")


def best_path(draft: Draft, start: int = -1) -> list[int]:
    """The drafter's favourite way on from a node: the most probable child each time, the first where none is rated."""
    below, path = children(draft.parents), []
    node = start
    while nodes := below.get(node):
        node = max(nodes, key=lambda n: (draft.probs[n] or 0.0, -n))
        path.append(node)
    return path


def ghosts(state: RunState, limit: int = 4) -> list[str]:
    """Labels of the rejected tokens where the last round's favourite path went on after the accepted part of it."""
    if not state.rounds or not state.running:
        return []
    last = state.rounds[-1]
    rest = best_path(last.draft, last.path[-1] if last.path else -1)
    return [last.draft.pieces[node] for node in rest[:limit] if last.draft.tokens[node] != UNDISCLOSED]


def rates(state: RunState, bins: int) -> list[float]:
    """Tokens per second over the run in ``bins`` equal stretches of decoding time; empty before the first round.

    A round's tokens are spread evenly over the round's own time, so no stretch is empty while a long round runs.
    """
    total = state.clock[-1] if state.clock else 0.0
    if total <= 0 or bins < 1:
        return []
    width, written, out = total / bins, accumulate(len(event.emitted) for event in state.rounds), []
    steps, (begin, before), (end, after), last = zip(state.clock, written), (0.0, 0), (0.0, 0), 0.0
    for edge in range(1, bins + 1):
        while end < edge * width and (step := next(steps, None)) is not None:
            (begin, before), (end, after) = (end, after), step
        share = min(1.0, (edge * width - begin) / (end - begin)) if end > begin else 1.0
        reached = before + share * (after - before)
        out.append((reached - last) / width)
        last = reached
    return out


def rate_now(state: RunState, window: float = 0.5) -> float | None:
    """Tokens per second over the last half second of decoding."""
    if not state.clock:
        return None
    end, count, index = state.clock[-1], 0, len(state.clock) - 1
    while index >= 0 and (index == len(state.clock) - 1 or end - state.clock[index] < window):
        count += len(state.rounds[index].emitted)
        index -= 1
    begin = state.clock[index] if index >= 0 else 0.0
    return count / (end - begin) if end > begin else None


def first_difference(a: RunState, b: RunState, ends: bool = True) -> int | None:
    """As ``first_differing`` of the tokens of two runs; only as far as both go where ``ends`` is False, or where one
    was stopped or did not come to its end."""
    first, second = ([token.emitted.token for token in run.tokens] for run in (a, b))
    whole = all(run.finished is not None and run.finished.reason != "cancelled" for run in (a, b))
    both = None if ends and whole else min(len(first), len(second))
    return first_differing(first[:both], second[:both])


def first_differing(a: Sequence[int], b: Sequence[int]) -> int | None:
    """The first index at which two answers differ, also by one's end; None where they are the same."""
    differing = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return differing if differing < max(len(a), len(b)) else None
