"""The rounds that pages point at, by what is in them: so a page finds its round in a run that is recorded anew."""

from __future__ import annotations

from collections.abc import Callable

from engines.report.events import Round, Trial
from engines.report.run_state import RunState, best_path
from spec_tui.present.step.phases import event_of

Score = Callable[[RunState, Round], float | None]
"""How well a round fits, the more the better; None where it does not."""


def pick(run: RunState, name: str) -> int | None:
    """The number of the round that fits a name best, the first of equals; 0 is the prefill. None where none fits.

    Raises:
        KeyError: there is no such name.
    """
    if name == "prefill":
        return 0 if run.prefilled is not None else None
    score = PICKS[name]
    found = [(value, -event.index) for event in run.rounds if (value := score(run, event)) is not None]
    return -max(found)[1] if found else None


def on_favourite(event: Round) -> int:
    """How many tokens would have been accepted if only the drafter's favourite path had been drafted."""
    kept = 0
    for guessed, accepted in zip(best_path(event.draft), event.path):
        if guessed != accepted:
            break
        kept += 1
    return kept


def throws(event: Round) -> list[Trial]:
    """The trials of a round, in their order."""
    return [trial for emitted in event.emitted for trial in emitted.trials]


def ratio(trial: Trial) -> float:
    """What the random draw must be below: p/q, at most 1."""
    return min(1.0, trial.target_prob / trial.draft_prob) if trial.draft_prob > 0 else 0.0


def most_thrown(event: Round) -> tuple[Trial, ...]:
    """The trials of the token for which a round needed most of them."""
    return max((emitted.trials for emitted in event.emitted), key=len, default=())


def closest(event: Round) -> Trial | None:
    """The trial whose draw was nearest to its bound, of those that could have gone either way."""
    open_ = [trial for trial in throws(event) if 0.1 <= ratio(trial) <= 0.95]
    return min(open_, key=lambda trial: abs(ratio(trial) - trial.dice), default=None)


def _judged(event: Round) -> bool:
    return bool(event.draft.tokens) and any(emitted.node < 0 for emitted in event.emitted)


def _several(run: RunState, event: Round) -> float | None:
    trials = most_thrown(event)
    return len(trials) if len(trials) > 1 and trials[-1].accepted else None


def _close(run: RunState, event: Round) -> float | None:
    found = closest(event)
    if found is None or event is event_of(run, pick(run, "several dice") or 0):
        return None
    return -abs(ratio(found) - found.dice)


def _corrected(run: RunState, event: Round) -> float | None:
    return 1 if event.path and event.emitted[-1].kind == "corrected" else None


def _off(run: RunState, event: Round) -> float | None:
    gain = len(event.path) - on_favourite(event)
    return gain if gain > 0 and _judged(event) else None


def _pruned(run: RunState, event: Round) -> float | None:
    found = event.retrieval
    return (sum(count for _, count in found.pruned) or None) if found is not None else None


PICKS: dict[str, Score] = {
    "first": lambda run, event: -event.index,
    "last": lambda run, event: event.index,
    "middle": lambda run, event: -abs(event.index - (len(run.rounds) + 1) // 2),
    "first drafted": lambda run, event: -event.index if _judged(event) else None,
    "most drafted": lambda run, event: len(event.draft.tokens) if _judged(event) else None,
    "most accepted": lambda run, event: len(event.path) if event.path and _judged(event) else None,
    "nothing drafted": lambda run, event: None if event.draft.tokens else 1,
    "corrected": _corrected,
    "all wrong": lambda run, event: len(event.draft.tokens) if _judged(event) and not event.path else None,
    "off the favourite": _off,
    "longest copy": lambda run, event: max((o.match or 0 for o in event.draft.origins), default=None),
    "longest match": lambda run, event: event.retrieval.match if event.retrieval and event.draft.tokens else None,
    "pruned": _pruned,
    "fused": lambda run, event: sum(origin >= 0 for origin in event.draft.also) or None,
    "several dice": _several,
    "close dice": _close,
}
