"""An answer as an audit takes it: what was asked, under which law, what was written. Plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engines.errors import UsageProblem
from engines.report.events import SAMPLING_FIELDS, Emitted, Finished, Prefilled, Ready, Round, RunEvent, Started


@dataclass(frozen=True, slots=True)
class Answer:
    """A run's result with what decided it.

    Attributes:
        model, dtype: what wrote it, as in ``Ready``.
        prompt, tokens: token ids of the context and of the answer.
        law, seed, lossless, and what is in ``SAMPLING_FIELDS``: as in ``Started``.
        probs: the probabilities recorded for the tokens (``Emitted.prob``); empty where unknown.
        computed_by: as in ``Started``.
    """

    model: str
    dtype: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    law: str = "exact"
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    lossless: bool | None = True
    probs: tuple[float, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    computed_by: str = ""

    def by(self, ready: Ready) -> Answer:
        """The same tokens, as those of a model that is loaded here: to check what another program wrote."""
        return replace(self, model=ready.model, dtype=ready.dtype)

    @classmethod
    def of(cls, started: Started, emitted: Iterable[Emitted]) -> Answer:
        """The answer of a run from its start and its tokens."""
        emitted = tuple(emitted)
        settings = ("model", "dtype", "prompt", "law", "seed", "lossless", "computed_by", *SAMPLING_FIELDS)
        return cls(
            **{name: getattr(started, name) for name in settings},
            tokens=tuple(e.token for e in emitted),
            probs=() if any(e.prob is None for e in emitted) else tuple(e.prob for e in emitted),
        )

    @classmethod
    def from_events(cls, events: Iterable[RunEvent]) -> Answer:
        """The answer of a run from its events, the last run of several. Raises UsageProblem where there is none, or
        some of it is missing."""
        started, prefilled, rounds, finished = None, None, [], None
        for event in events:
            if isinstance(event, Started):
                started, prefilled, rounds, finished = event, None, [], None
            elif isinstance(event, Prefilled):
                prefilled = event
            elif isinstance(event, Round):
                rounds.append(event)
            elif isinstance(event, Finished):
                finished = event
        if started is None:
            raise UsageProblem("there is no run among these events", "give all events of a run, Started first")
        emitted = [] if prefilled is None else [prefilled.first]
        emitted += [token for event in rounds for token in event.emitted]
        if lack(prefilled, rounds, len(emitted), finished):
            raise UsageProblem("events of this run are missing", "give all of them, Started first")
        return cls.of(started, emitted)


def lack(prefilled: Prefilled | None, rounds: Sequence[Round], tokens: int, finished: Finished | None) -> bool:
    """Whether events of a run, which emitted so many tokens, are missing among these."""
    if rounds and (prefilled is None or rounds[-1].index != len(rounds)):
        return True
    return finished is not None and len(finished.tokens) != tokens
