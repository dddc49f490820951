"""The phases of a round, in the order in which they happen, and the way through a run from one to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.report.events import Round
from engines.report.run_state import RunState, TokenState

Phase = Literal["context", "draft", "tree", "verify", "accept", "correct", "keep"]
PHASES: tuple[Phase, ...] = ("context", "draft", "tree", "verify", "accept", "correct", "keep")
_OWN = {"corrected": "Correct", "bonus": "Bonus", "target": "Target"}


@dataclass(frozen=True, slots=True)
class StepPosition:
    """Where in a run: ``round`` 0 is the prefill, n the n-th round (``RunState.rounds[n - 1]``)."""

    round: int = 0
    phase: Phase = "context"


def event_of(run: RunState, number: int) -> Round | None:
    """The event of a round; None for the prefill and beyond the end."""
    return run.rounds[number - 1] if 1 <= number <= len(run.rounds) else None


def number_of(run: RunState, place: int) -> int:
    """The number that a round had when it was made: in a damaged trace, rounds before it may be missing."""
    return run.rounds[place - 1].index if place else 0


def phases_of(run: RunState, number: int) -> tuple[Phase, ...]:
    """What happens in a round: without a draft nothing is accepted, and a path may fill the answer to its end."""
    event = event_of(run, number)
    if event is None:
        return ("context", "verify", "correct", "keep")
    own = ("correct",) if any(e.node < 0 for e in event.emitted) else ()
    if not event.draft.tokens:
        return ("context", "draft", "verify", *own, "keep")
    return ("context", "draft", "tree", "verify", "accept", *own, "keep")


def title_of(run: RunState | None, place: StepPosition) -> str:
    """A phase by name; the target's own token by its fate, which is hidden without a run."""
    if place.phase != "correct":
        return place.phase.capitalize()
    if run is None:
        return "Own token"
    own = emits(run, place)
    return _OWN.get(own[-1].kind, "Correct") if own else "Correct"


def following(run: RunState, place: StepPosition) -> StepPosition | None:
    """The next phase, of this round or of the next one; None at the end."""
    phases = phases_of(run, place.round)
    at = phases.index(place.phase) + 1
    if at < len(phases):
        return StepPosition(place.round, phases[at])
    return StepPosition(place.round + 1) if place.round < len(run.rounds) else None


def preceding(run: RunState, place: StepPosition) -> StepPosition | None:
    """The phase before; None at the beginning."""
    at = phases_of(run, place.round).index(place.phase)
    if at:
        return StepPosition(place.round, phases_of(run, place.round)[at - 1])
    return StepPosition(place.round - 1, "keep") if place.round else None


def in_round(run: RunState, place: StepPosition, number: int) -> StepPosition:
    """The same phase of another round, the nearest that it has."""
    number = max(0, min(number, len(run.rounds)))
    wanted, has = PHASES.index(place.phase), phases_of(run, number)
    return StepPosition(number, min(has, key=lambda phase: abs(PHASES.index(phase) - wanted)))


def emits(run: RunState, place: StepPosition) -> list[TokenState]:
    """The tokens that a phase adds to the answer: accepted ones when they are accepted, the target's own after that."""
    event = event_of(run, place.round)
    if event is None:
        return run.tokens[:1] if place == StepPosition(0, "correct") and run.prefilled else []
    tokens = run.tokens_of(place.round - 1)
    if place.phase == "accept":
        return [token for token in tokens if token.emitted.node >= 0]
    return [token for token in tokens if token.emitted.node < 0] if place.phase == "correct" else []


def written(run: RunState, place: StepPosition) -> int:
    """How many tokens of the answer are there after a phase."""
    event = event_of(run, place.round)
    before = run.starts[place.round - 1] if event is not None else 0
    phases = phases_of(run, place.round)
    here = phases[: phases.index(place.phase) + 1]
    return before + sum(len(emits(run, StepPosition(place.round, phase))) for phase in here)


def mask(parents: tuple[int, ...]) -> list[list[bool]]:
    """The attention mask of a draft tree among its own rows: [1 + nodes][1 + nodes], the root first; True where the
    row sees the column: its ancestors and itself. The context before the root is seen by every row."""
    size = len(parents) + 1
    rows = [[False] * size for _ in range(size)]
    rows[0][0] = True
    for node, parent in enumerate(parents, 1):
        rows[node] = list(rows[parent + 1])
        rows[node][node] = True
    return rows
