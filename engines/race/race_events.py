"""What a race reports: events around those of its runs.

A race is ``RaceStarted``, a ``LaneStarted`` and (warm-ups excepted) a ``LaneFinished`` for each run, ``Compared`` for
each pair of lanes, ``RaceFinished``. The events of a run (``Started``, ``Prefilled``, ``Round``..., ``Finished``)
follow a ``LaneEvents``, which says whose they are: in a live race as they happen, otherwise when they cannot take time
from any lane any more. A run that breaks says so in its ``LaneFinished``; a ``Failed`` ends the whole race. ``Audited``
follows a ``LaneEvents`` of its own. A run counts once both its ``LaneFinished`` and its events are there; one that was
interrupted gets no ``LaneFinished``.

Lanes, repeats and prompts are numbered from 0. A prompt of several turns counts once for each turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engines.race.lanes import Lane
from engines.report.events import Failed

Sameness = Literal["same", "tie", "BUG", "by design", "other weights", "differs", "unchecked"]
"""Of the texts of two lanes. tie: they differ, and each is the target's choice within rounding. BUG: they differ, and
an audit found a token that is not. by design: they differ, and may: random draws or a lossy law decide. differs: they
do, and another program wrote one of them, whose token is not the target's choice as it is computed here. other weights:
they do, and were computed here by different weights or in different dtypes (quantised, and not), which an audit by the
target cannot judge. unchecked: they differ, and no audit says why: it was stopped, or failed."""


@dataclass(frozen=True, slots=True)
class RaceStarted:
    """A race begins. ``baseline``: the lane that speed-ups are measured against. ``prompts`` counts turns. ``live``:
    the numbers are not comparable."""

    lanes: tuple[Lane, ...]
    prompts: int
    repeats: int
    baseline: int
    live: bool = False


@dataclass(frozen=True, slots=True)
class LaneStarted:
    """A lane is about to run; nothing else is said until it has (live races excepted). ``step`` of ``steps`` runs (from
    1), warm-ups included. The numbers of a warm-up count nowhere."""

    lane: int
    repeat: int
    prompt: int
    step: int
    steps: int
    warm_up: bool = False


@dataclass(frozen=True, slots=True)
class LaneEvents:
    """Whose the events are that follow, up to the next one of a race."""

    lane: int
    repeat: int
    prompt: int


@dataclass(frozen=True, slots=True)
class LaneFinished:
    """A lane has run to its end, or broke.

    Attributes:
        tokens: new tokens. ``tokens_per_second`` as in ``Metrics``, None where there is none.
        seconds: wall time of the whole run, prefill included.
        memory: bytes of the weights that this engine runs and of their KV rows, computed from shapes and dtype; what
            lies in a datastore is not in it. None where unknown.
        other_seconds: processor time that everything else on the machine took meanwhile, over all cores; a little
            below 0 where the system's steps of some 10 ms say so; None where it does not say.
        waited_seconds: how long the decoding thread was ready to go on and had no core; None where unknown.
        failed: why the run broke, None where it did not; a lane that broke takes no further part.
    """

    lane: int
    repeat: int
    prompt: int
    tokens: int
    tokens_per_second: float | None
    seconds: float
    memory: int | None = None
    other_seconds: float | None = None
    waited_seconds: float | None = None
    failed: Failed | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """The texts of two lanes on a prompt, over all repeats. A lane is a pair with itself where its repeats differ.

    Attributes:
        first, second: lanes; ``first <= second``.
        at: index in the answer of the first token that differs in the earliest-differing repeat; None where the same.
        first_repeat, second_repeat: the repeats in which it does.
        bugs: those of the two lanes in whose text the audit found a BUG.
        gap: of texts that differ because of another program: how far the target's scores must move at ``at`` for the
            worse of the two tokens to be its choice; else None.
    """

    first: int
    second: int
    prompt: int
    verdict: Sameness
    at: int | None = None
    first_repeat: int = 0
    second_repeat: int = 0
    bugs: tuple[int, ...] = ()
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class RaceFinished:
    """A race ended: ``done``, or ``cancelled``, with what is complete."""

    reason: Literal["done", "cancelled"]


RaceEvent = RaceStarted | LaneStarted | LaneEvents | LaneFinished | Compared | RaceFinished
