"""Why a run's speed may say little: the answer came all at once, repeats itself or was in the datastore already; the
machine was busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from engines.race.result import Disturbance
from engines.report.events import UNDISCLOSED, Emitted, Origin
from engines.report.run_state import RunState
from spec_tui.present.race_text import AT_ONCE, disturbance_sentence
from spec_tui.present.text import one_line

_LONGEST, _TIMES, _FEWEST = 64, 3, 24  # tokens of a loop, how often it comes, tokens that it takes together
_HELD, _ENOUGH = 0.5, 16  # share of an answer that comes from one document, and tokens to tell


@dataclass(frozen=True, slots=True)
class Caveat:
    """A sentence without a full stop: ``brief`` for a line of 76 columns, ``words`` with what was found."""

    brief: str
    words: str


def speed_caveats(run: RunState, disturbed: Disturbance | None = None) -> list[Caveat]:
    """What to be careful of, the gravest first; nothing where the speed may be believed."""
    found = []
    if run.metrics.at_once:
        found.append(Caveat(AT_ONCE, AT_ONCE))
    if (period := loop_length([_known(token.emitted) for token in run.tokens])) is not None:
        again = f"{period} token{'s' * (period > 1)} over and over"
        found.append(Caveat(
            "the answer repeats itself, which is easy to draft: its speed says little",
            f"the answer repeats itself ({again}): that is easy to draft, so its speed says little"))
    if (held := copied_from(run)) is not None:
        where = "the datastore already holds this answer" if held.datastore else "a past answer already holds this one"
        found.append(Caveat(
            f"{where}: its speed says little",
            f"{where} ({one_line(held.document, 40)}): its speed says little about other prompts"))
    if disturbed is not None and (sentence := disturbance_sentence(disturbed)):
        found.append(Caveat("other programs kept the machine busy: this speed is less certain", sentence))
    return found


def _known(token: Emitted) -> int | str:
    """What tells a token from others: its text where a server does not say its id."""
    return token.text if token.token == UNDISCLOSED else token.token


def loop_length(tokens: Sequence[int | str]) -> int | None:
    """The length of the passage that the last tokens repeat, at least three times; None where they do not."""
    for period in range(1, min(_LONGEST, len(tokens) // _TIMES) + 1):
        size = max(_TIMES * period, _FEWEST)
        tail = tokens[-size:]
        if len(tail) == size and tail[period:] == tail[:-period]:
            return period
    return None


def copied_from(run: RunState) -> Origin | None:
    """The document in a datastore, or the past answer, that at least half of the answer was copied from; None where
    there is none."""
    if len(run.tokens) < _ENOUGH:
        return None
    held: Counter[tuple[str, str | None, str]] = Counter()
    for event in run.rounds:
        draft = event.draft
        for node in event.path:
            origin = draft.origins[draft.origin[node]]
            if origin.document:
                held[origin.source, origin.datastore, origin.document] += 1
    for (source, datastore, document), count in held.most_common(1):
        enough = count >= _HELD * len(run.tokens)
        return Origin(source, datastore=datastore, document=document) if enough else None
    return None
