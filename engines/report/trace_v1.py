"""Rounds of traces that version 1 of this program wrote: their notes had words for keys."""

from __future__ import annotations

from dataclasses import replace

from engines.cost.budget import BudgetChoice
from engines.report.events import Round

_NAMES = {
    "draft forwards": "draft_forwards", "exit threshold": "exit_threshold", "best of": "candidates",
    "place": "position", "drafted by": "drafted_by", "found after drafted tokens": "shared",
}
_SCORE = "score of "
_OLD = {*_NAMES, "budget", "expected", "threads"}


def upgraded(event: Round) -> Round:
    """A round in today's form; one that is not of version 1 as it is."""
    if not any(name in _OLD or name.startswith(_SCORE) for name in event.note):
        return event
    note = dict(event.note)
    threads, budget = note.pop("threads", None), _budget(note.pop("budget", None), note.pop("expected", None))
    scores = {name.removeprefix(_SCORE): note.pop(name) for name in event.note if name.startswith(_SCORE)}
    if note.get("drafted by") == "none":
        del note["drafted by"]
    note = {_NAMES.get(name, name): value for name, value in note.items()} | ({"scores": scores} if scores else {})
    return replace(event, note=note, budget=budget, threads=threads if type(threads) is int else None)


def _budget(kept: object, expected: object) -> BudgetChoice | None:
    """"12 of 20", or 12 of a chain."""
    chosen, _, proposed = str(kept).partition(" of ")
    if not (chosen.isdecimal() and (not proposed or proposed.isdecimal()) and isinstance(expected, int | float)):
        return None
    return BudgetChoice(int(chosen), int(proposed) if proposed else None, float(expected))
